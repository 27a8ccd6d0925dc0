//! What is seen of an engine from outside: the kernel's accounts of its memory, and its page.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// An engine answers between two steps; what takes longer than this is a hang.
const ANSWER: Duration = Duration::from_secs(30);

/// Where memory is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the memory files that play device memory.
    Device,
    /// In anonymous memory of the process.
    Host,
}

/// An engine at one moment.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) at: Instant,
    /// By the kernel, in bytes.
    pub(super) held: u64,
    /// What the engine says it has lost, in bytes.
    pub(super) said: u64,
}

impl Look {
    /// What it holds beside.
    pub(super) const fn beside(&self) -> i128 {
        self.held as i128 - self.said as i128
    }
}

/// Looks at process `pid` that answers at `address`.
pub(super) fn look(pid: u32, place: Place, address: &str) -> Result<Look> {
    let said = said(&page(address)?).context("the engine's page does not tell what it lost")?;
    let directory = Path::new("/proc").join(pid.to_string());
    let held = match place {
        Place::Device => device(&directory).context("cannot look at the engine's files")?,
        Place::Host => host(&directory)?,
    };
    Ok(Look { at: Instant::now(), held, said })
}

/// Bytes that the kernel has allocated for the memory files which play device memory.
fn device(process: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(process.join("fd"))?.flatten() {
        let is_device = std::fs::read_link(entry.path())
            .is_ok_and(|name| name.to_string_lossy().contains("/memfd:ebbtide-vram"));
        if is_device {
            // st_blocks counts in units of 512 bytes (stat(2)).
            bytes += std::fs::metadata(entry.path())?.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// `RssAnon` of `/proc/PID/status`, which is in KiB (proc(5)).
fn host(process: &Path) -> Result<u64> {
    let status = std::fs::read_to_string(process.join("status")).context("cannot look at the engine")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.context("the kernel does not tell the engine's anonymous memory")? * 1024)
}

fn page(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).context("the engine does not answer")?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page).context("reading the engine's page")?;
    Ok(page)
}

fn said(page: &str) -> Option<u64> {
    let line = page.lines().find(|line| line.starts_with("ebbtide_engine_injected_leak_bytes_total{"))?;
    line.rsplit_once(' ')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_is_read_off_the_page() {
        let page = "# HELP x\nebbtide_engine_injected_leak_bytes_total{leak=\"scratch\"} 4096\r\nother 1\n";
        assert_eq!(said(page), Some(4096));
        assert_eq!(said("other 1\n"), None);
    }
}
