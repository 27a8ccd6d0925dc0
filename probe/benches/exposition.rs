//! What reading an engine costs: `cargo bench -p ebbtide-probe --bench exposition`. Printed, not asserted.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where its input is missing"
)]

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use ebbtide_probe::engine::exposition::Exposition;
use ebbtide_probe::engine::{EngineTarget, Scraper, Tables};
use rustix::time::{ClockId, clock_gettime};

/// The page is repeated, with another model's name each time, until it has this size.
const PAGE_BYTES: usize = 1_000_000;
/// What reading a page of 1 MB ought to reach, in MB a second.
const WANTED_MB_S: f64 = 200.0;
/// What a scrape of a page as vLLM serves it ought to stay below, in microseconds of processor time.
const WANTED_CPU_US: f64 = 3000.0;
/// Enough that the median is steady on a busy machine.
const ROUNDS: usize = 200;

fn main() {
    let sample = include_str!("../../tests/fixtures/engines/vllm-0.33.0.prom");
    parsing(sample);
    scraping(sample);
}

fn parsing(sample: &str) {
    let mut page = String::new();
    for copy in 0.. {
        if page.len() >= PAGE_BYTES {
            break;
        }
        page.push_str(&sample.replace("model_name=\"", &format!("model_name=\"{copy}-")));
    }
    let series = Exposition::new(page.as_bytes()).flatten().count();
    let (median, best) = median_and_best(|| read(&page));
    let rate = page.len() as f64 / median;
    println!(
        "parse   {} bytes, {series} series: median {median:.0} us, best {best:.0} us, {rate:.0} MB/s (wanted {WANTED_MB_S}: {})",
        page.len(),
        verdict(rate >= WANTED_MB_S)
    );
}

fn verdict(is_reached: bool) -> &'static str {
    if is_reached { "reached" } else { "missed" }
}

/// A whole scrape over loopback. The processor time is that of both ends, so ours is less.
fn scraping(sample: &'static str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || serve(&listener, sample));
    let mut scraper = scraper(address);
    scraper.scrape().unwrap();
    let before = processor_us();
    let (median, best) = median_and_best(|| {
        let started = Instant::now();
        black_box(scraper.scrape().unwrap().sample("bench", Some(131_072)));
        started.elapsed().as_secs_f64() * 1e6
    });
    let each = (processor_us() - before) / ROUNDS as f64;
    println!(
        "scrape  {} bytes: median {median:.0} us, best {best:.0} us, processor {each:.0} us (wanted below {WANTED_CPU_US}: {})",
        sample.len(),
        verdict(each < WANTED_CPU_US)
    );
}

fn scraper(address: SocketAddr) -> Scraper {
    let target = EngineTarget { address: address.to_string(), ..EngineTarget::default() };
    Scraper::new(&target, Arc::new(Tables::embedded())).unwrap()
}

fn serve(listener: &TcpListener, page: &str) {
    for mut stream in listener.incoming().flatten() {
        let mut request = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len()).unwrap();
        stream.write_all(page.as_bytes()).unwrap();
    }
}

fn median_and_best(mut round: impl FnMut() -> f64) -> (f64, f64) {
    let mut micros: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    micros.sort_by(f64::total_cmp);
    (micros[ROUNDS / 2], micros[0])
}

fn processor_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn read(page: &str) -> f64 {
    let started = Instant::now();
    let sum: f64 = Exposition::new(black_box(page.as_bytes())).map(|series| series.unwrap().value).sum();
    black_box(sum);
    started.elapsed().as_secs_f64() * 1e6
}
