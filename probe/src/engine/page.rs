//! One page of an engine, with what its tables ask for.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::exposition::{Exposition, Fault};
use super::table::{Across, Format, Place, Table};

/// Series kept of a page. The tables ask for some twenty metrics, with one series a rank, so this is some two hundred
/// ranks; what has more is no engine's page.
const MAX_KEPT: usize = 4_000;
/// The largest page of JSON: a parsed document takes up to sixteen times its text. llama.cpp's slots, with the prompts
/// that its older versions put in, are the longest of all.
const JSON_CAP: usize = 2 << 20;

/// A page that was read.
#[derive(Debug, Clone)]
pub struct Page {
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Series(HashMap<String, Vec<Point>>),
    Json(Value),
}

/// One series that a table asks for.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    /// By name.
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Why a page cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The text is malformed.
    #[error("the page makes no sense")]
    Malformed(#[from] Fault),
    /// A series that is asked for stands on it twice.
    #[error("{metric} stands on the page twice with the same labels")]
    Duplicate {
        /// Its name.
        metric: String,
    },
    /// There are more series of the metrics asked for than any engine has.
    #[error("more than {MAX_KEPT} series of the metrics that are looked for")]
    TooMany,
    /// It is no JSON.
    #[error("the page is no JSON")]
    Json(#[from] serde_json::Error),
    /// It is JSON, and more of it than any engine's page.
    #[error("the page has more than {JSON_CAP} bytes of JSON")]
    TooLarge,
}

impl Page {
    /// Reads `body`, keeping the metrics in `wanted` if it is in the Prometheus format.
    ///
    /// # Errors
    /// The page is malformed somewhere: then nothing of it is believed.
    pub fn read(body: &[u8], format: Format, wanted: &HashSet<&str>) -> Result<Self, PageError> {
        let content = match format {
            Format::Exposition => Content::Series(kept(body, wanted)?),
            Format::Json if body.len() > JSON_CAP => return Err(PageError::TooLarge),
            Format::Json => Content::Json(serde_json::from_slice(body)?),
        };
        Ok(Self { content })
    }

    /// Whether `table` describes this page.
    #[must_use]
    pub fn is_described_by(&self, table: &Table) -> bool {
        let has = |mark: &String| match &self.content {
            Content::Series(series) => series.contains_key(mark),
            Content::Json(document) => !elements(document, mark).is_empty(),
        };
        let format = match self.content {
            Content::Series(_) => Format::Exposition,
            Content::Json(_) => Format::Json,
        };
        format == table.format && table.has.iter().all(has) && !table.lacks.iter().any(has)
    }

    /// The number at `place`: copies told apart by `table`'s replica labels once, the rest put together. `None`
    /// where it is absent, and where any part of it is NaN, infinite, negative or no number: engines write NaN and -1
    /// for "not known", and a sum without one rank is not the sum.
    #[must_use]
    pub fn number(&self, place: &Place, table: &Table) -> Option<f64> {
        let values = match &self.content {
            Content::Series(series) => numbers(series, place, &table.replicas)?,
            Content::Json(document) => elements(document, place.pointer.as_deref()?)
                .into_iter()
                .map(json_number)
                .collect::<Option<_>>()?,
        };
        let factor = match &place.times {
            Some(other) => self.number(other, table)?,
            None => 1.0,
        };
        let whole = together(&values, place.across)? * place.scale * factor;
        (whole.is_finite() && whole >= 0.0).then_some(whole)
    }

    /// The text at `place`: the first where there are several.
    #[must_use]
    pub fn text(&self, place: &Place) -> Option<String> {
        let text = match &self.content {
            Content::Series(series) => {
                let label = place.label.as_deref()?;
                let mut points = points(series, place);
                points.find_map(|point| point.labels.get(label)).cloned()?
            }
            Content::Json(document) => {
                let found = elements(document, place.pointer.as_deref()?);
                found.first()?.as_str()?.to_owned()
            }
        };
        Some(place.values.get(&text).cloned().unwrap_or(text)).filter(|text| !text.is_empty())
    }

    /// How many data-parallel ranks there are: the values that label `by` has on the series of `metrics`, or on a page
    /// of JSON the elements that the pointer `by` points at. At least 1.
    #[must_use]
    pub fn ranks<'a>(&self, by: &str, metrics: impl Iterator<Item = &'a str>) -> u32 {
        let count = match &self.content {
            Content::Series(series) => {
                let points = metrics.filter_map(|metric| series.get(metric)).flatten();
                points.filter_map(|point| point.labels.get(by)).collect::<HashSet<_>>().len()
            }
            Content::Json(document) => elements(document, by).len(),
        };
        u32::try_from(count).unwrap_or(u32::MAX).max(1)
    }
}

fn kept(body: &[u8], wanted: &HashSet<&str>) -> Result<HashMap<String, Vec<Point>>, PageError> {
    let mut series: HashMap<String, Vec<Point>> = HashMap::new();
    // The series of one metric stand together, so most answers are the previous one.
    let (mut previous, mut is_wanted) = ("", false);
    let mut count = 0;
    for one in Exposition::new(body) {
        let one = one?;
        if one.name != previous {
            (previous, is_wanted) = (one.name, wanted.contains(one.name));
        }
        if !is_wanted {
            continue;
        }
        count += 1;
        if count > MAX_KEPT {
            return Err(PageError::TooMany);
        }
        let labels = one.labels().map(|(name, value)| (name.to_owned(), value.into_owned())).collect();
        series.entry(one.name.to_owned()).or_default().push(Point { labels, value: one.value });
    }
    let mut seen = HashSet::new();
    for (metric, points) in &series {
        if points.iter().any(|point| !seen.insert((metric, &point.labels))) {
            return Err(PageError::Duplicate { metric: metric.clone() });
        }
    }
    Ok(series)
}

fn points<'a>(series: &'a HashMap<String, Vec<Point>>, place: &'a Place) -> impl Iterator<Item = &'a Point> {
    let all = place.metric.as_ref().and_then(|metric| series.get(metric));
    let allows = |point: &Point| {
        let mut conditions = place.conditions.iter();
        conditions.all(|(name, allowed)| point.labels.get(name).is_some_and(|value| allowed.contains(value)))
    };
    all.into_iter().flatten().filter(move |point| allows(point))
}

fn numbers(series: &HashMap<String, Vec<Point>>, place: &Place, replicas: &[String]) -> Option<Vec<f64>> {
    let mut largest: BTreeMap<Vec<(&String, &String)>, f64> = BTreeMap::new();
    for point in points(series, place) {
        let value = match &place.label {
            Some(label) => point.labels.get(label)?.parse().ok()?,
            None => point.value,
        };
        if !value.is_finite() || value < 0.0 {
            return None;
        }
        let own = point.labels.iter().filter(|(name, _)| !replicas.contains(name)).collect();
        let known = largest.entry(own).or_insert(value);
        *known = known.max(value);
    }
    Some(largest.into_values().collect())
}

fn json_number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::Bool(yes) => f64::from(u8::from(*yes)),
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    };
    (number.is_finite() && number >= 0.0).then_some(number)
}

fn together(values: &[f64], across: Across) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    match across {
        _ if values.is_empty() => None,
        Across::Sum => Some(sum),
        Across::Mean => Some(sum / values.len() as f64),
        Across::Max => values.iter().copied().reduce(f64::max),
    }
}

/// What `pointer` points at; a `*` at every element, a `-` at the last of a list. Elements without the rest of the path are left out.
fn elements<'a>(document: &'a Value, pointer: &str) -> Vec<&'a Value> {
    let mut found = vec![document];
    for step in pointer.split('/').skip(1) {
        found = found.into_iter().flat_map(|value| step_into(value, step)).collect();
    }
    found
}

fn step_into<'a>(value: &'a Value, step: &str) -> Vec<&'a Value> {
    match value {
        Value::Array(list) if step == "*" => list.iter().collect(),
        Value::Array(list) if step == "-" => list.last().into_iter().collect(),
        Value::Object(members) if step == "*" => members.values().collect(),
        Value::Array(list) => step.parse::<usize>().ok().and_then(|at| list.get(at)).into_iter().collect(),
        Value::Object(members) => {
            members.get(&step.replace("~1", "/").replace("~0", "~")).into_iter().collect()
        }
        _ => Vec::new(),
    }
}
