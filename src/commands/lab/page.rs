//! The outcome as a page that needs nothing else: no script, no style or picture from elsewhere.

use std::fmt::Write;

use ebbtide_engine::lab::{Outcome, Point, Row};

use super::table::{self, Table};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d5dbe3;--page:#fff;--held:#9db8d9;--filled:#1f6f8b}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e9f0;--soft:#9aa6b5;--line:#36404d;--page:#12161c;--held:#3f5876;--filled:#4fb3d0}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:64rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
.wide{overflow-x:auto}\
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}\
th{color:var(--soft);font-weight:600}\
p{max-width:46rem;color:var(--soft)}\
.courses{display:grid;grid-template-columns:repeat(auto-fill,minmax(17rem,1fr));gap:1rem}\
figure{margin:0}figcaption{font-size:.85rem;color:var(--soft)}\
svg{width:100%;height:auto;display:block;border-bottom:1px solid var(--line)}\
.held{fill:var(--held)}.filled{fill:var(--filled)}";

/// The page.
pub(super) fn of(outcome: &Outcome) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut page, outcome);
    page
}

fn write(page: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let title = format!("ebbtide lab: {}", outcome.model);
    writeln!(page, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>")?;
    writeln!(page, "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>")?;
    writeln!(page, "<title>{}</title><style>{STYLE}</style></head><body>", escaped(&title))?;
    writeln!(page, "<h1>{}</h1>\n<p>{}</p>", escaped(&title), escaped(&table::heading(outcome)))?;
    for table in table::all(outcome) {
        tabled(page, &table)?;
        if table.title == "Memory" {
            courses(page, outcome)?;
        }
    }
    writeln!(page, "</body></html>")
}

fn tabled(page: &mut String, table: &Table) -> std::fmt::Result {
    writeln!(page, "<h2>{}</h2>\n<div class=\"wide\"><table><thead><tr>", escaped(table.title))?;
    table.columns.iter().try_for_each(|column| write!(page, "<th>{}</th>", escaped(column)))?;
    writeln!(page, "</tr></thead><tbody>")?;
    for row in &table.rows {
        write!(page, "<tr>")?;
        row.iter().try_for_each(|cell| write!(page, "<td>{}</td>", escaped(cell)))?;
        writeln!(page, "</tr>")?;
    }
    writeln!(page, "</tbody></table></div>\n<p>{}</p>", escaped(&table.note))
}

/// Memory of each strategy while it served, all in one scale.
fn courses(page: &mut String, outcome: &Outcome) -> std::fmt::Result {
    writeln!(page, "<h2>Memory while the load is served</h2>\n<div class=\"courses\">")?;
    outcome.rows.iter().try_for_each(|row| course(page, row, outcome.memory_bytes.0))?;
    writeln!(
        page,
        "</div>\n<p>From left to right the steps of each strategy, upwards to {}. Light: held. Dark: filled.</p>",
        outcome.memory_bytes
    )
}

/// Width and height of a picture, in its own units.
const PICTURE: (f64, f64) = (240.0, 80.0);

fn course(page: &mut String, row: &Row, top: u64) -> std::fmt::Result {
    let (width, height) = PICTURE;
    let area = |bytes: fn(&Point) -> u64| {
        let points = row.service.course.iter().map(bytes);
        let step = width / row.service.course.len().max(1) as f64;
        let mut path = format!("M0 {height}");
        for (at, bytes) in points.enumerate() {
            let y = height * (1.0 - bytes as f64 / top.max(1) as f64);
            // Writing to a String cannot fail.
            let _ = write!(path, "V{y:.1}H{:.1}", (at + 1) as f64 * step);
        }
        path + &format!("V{height}Z")
    };
    let name = escaped(&row.name);
    writeln!(
        page,
        "<figure><svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{name}\"><path class=\"held\" d=\"{}\"/><path class=\"filled\" d=\"{}\"/></svg>",
        area(|point| point.held_bytes.0),
        area(|point| point.filled_bytes.0)
    )?;
    writeln!(
        page,
        "<figcaption>{name}: {} at most, {} steps</figcaption></figure>",
        row.service.peak_bytes, row.service.steps
    )
}

/// As text between tags or in an attribute.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
