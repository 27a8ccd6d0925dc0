//! One engine that is asked again and again.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exposition::ends_open;
use super::http::{self, Body, FetchError};
use super::page::{Page, PageError};
use super::quantity::Quantities;
use super::table::{Format, Tables};

/// All pages of one reading together: an engine under load answers in tens of milliseconds, and one that takes longer
/// than this has none to give.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// The page that nearly every engine has, and so is asked first.
const USUAL_PATH: &str = "/metrics";

/// An engine to read, as a user names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineTarget {
    /// `host:port` or `http://host:port`; a port alone is on loopback.
    pub address: String,
    /// The short name of the engine (`vllm`, `sglang`, `llamacpp`, ...); without it, all tables are tried.
    pub engine: Option<String>,
    /// The process on the GPU that its figures belong to; without it, the owner of the listening socket is looked for.
    pub pid: Option<u32>,
    /// Bytes of KV cache that one token takes on one GPU, for engines that count tokens and blocks only.
    pub kv_bytes_per_token: Option<u64>,
}

/// Why a target's figures cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The address is none.
    #[error("\"{0}\" is no address of an engine: write host:port or http://host:port")]
    Address(String),
    /// The host has no address.
    #[error("{0} cannot be resolved")]
    Host(String),
    /// No table has this name.
    #[error("no table describes an engine \"{0}\": see docs/engines.md for the names")]
    Engine(String),
    /// The page could not be had.
    #[error("{path} cannot be read")]
    Fetch {
        /// Which page.
        path: String,
        /// Why.
        source: FetchError,
    },
    /// The page could not be used.
    #[error("{path} cannot be used")]
    Page {
        /// Which page.
        path: String,
        /// Why.
        source: PageError,
    },
    /// It answers, and no table describes what.
    #[error(
        "no table describes what it answers: it is no engine, its metrics are off, or its version is not known"
    )]
    NoEngine,
}

impl TargetError {
    /// Whether nobody answered, rather than somebody who is no engine.
    #[must_use]
    pub const fn is_silence(&self) -> bool {
        matches!(self, Self::Fetch { source: FetchError::Connect(_) | FetchError::Timeout, .. })
    }
}

/// Reads one target and remembers which engine it is.
#[derive(Debug)]
pub struct Scraper {
    address: SocketAddr,
    tables: Arc<Tables>,
    /// The engine's short name, as given or as recognised.
    engine: Option<String>,
    is_hint: bool,
    /// What pages said that need not be asked twice, by path; `None` where there is no such page.
    lasting: HashMap<String, Option<Quantities>>,
}

impl Scraper {
    /// A reader of what listens at `target`.
    ///
    /// # Errors
    /// The address is none, or the engine hinted at is not known.
    pub fn new(target: &EngineTarget, tables: Arc<Tables>) -> Result<Self, TargetError> {
        let address = resolve(&target.address)?;
        if let Some(engine) = target.engine.as_ref()
            && !tables.files().iter().any(|file| file.engine == *engine)
        {
            return Err(TargetError::Engine(engine.clone()));
        }
        let (engine, is_hint) = (target.engine.clone(), target.engine.is_some());
        Ok(Self { address, tables, engine, is_hint, lasting: HashMap::new() })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads all pages of the engine within [`DEADLINE`].
    ///
    /// # Errors
    /// Nothing could be read, or nothing of it is an engine's. A page beside the first that is missing is no error.
    pub fn scrape(&mut self) -> Result<Quantities, TargetError> {
        let until = Instant::now() + DEADLINE;
        let found = match self.engine.clone() {
            Some(engine) => self.pages_of(&engine, None, until),
            None => self.recognise(until),
        };
        if found.is_err() {
            // The engine may have been restarted with another configuration, or another one listens there now.
            self.lasting.clear();
        }
        if !self.is_hint {
            self.engine = found.as_ref().ok().map(|whole| whole.engine().to_owned());
        }
        found
    }

    /// Tries the usual page and then every other.
    fn recognise(&mut self, until: Instant) -> Result<Quantities, TargetError> {
        let tables = Arc::clone(&self.tables);
        let others = tables.files().iter().flat_map(|file| file.pages(false));
        let mut tried = HashSet::new();
        let mut refused = None;
        for path in std::iter::once(USUAL_PATH).chain(others).filter(|path| tried.insert(*path)) {
            match self.page(path, None, until) {
                Ok(Some(first)) => {
                    let engine = first.engine().to_owned();
                    return self.pages_of(&engine, Some((path, first)), until);
                }
                Ok(None) | Err(TargetError::Fetch { source: FetchError::Status(_), .. }) => {}
                Err(error @ TargetError::Fetch { .. }) => return Err(error),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or(TargetError::NoEngine))
    }

    /// Reads the pages of `engine`, without the one that was `read` already, and puts them together.
    fn pages_of(
        &mut self,
        engine: &str,
        read: Option<(&str, Quantities)>,
        until: Instant,
    ) -> Result<Quantities, TargetError> {
        let (read_path, mut whole) = read.map_or((None, None), |(path, first)| (Some(path), Some(first)));
        let tables = Arc::clone(&self.tables);
        let mut refused = None;
        for fallback in [false, true] {
            if fallback && (whole.is_some() || !self.is_hint) {
                break;
            }
            let files = tables.files().iter().filter(|file| file.engine == engine);
            for path in files.flat_map(|file| file.pages(fallback)).filter(|path| Some(*path) != read_path) {
                match self.page(path, Some(engine), until) {
                    Ok(Some(more)) => match &mut whole {
                        Some(whole) => whole.complete(more),
                        None => whole = Some(more),
                    },
                    Ok(None) => {}
                    Err(error) => refused = refused.or(Some(error)),
                }
            }
        }
        whole.ok_or_else(|| refused.unwrap_or(TargetError::NoEngine))
    }

    /// What the page at `path` says; `None` where no table describes it.
    fn page(
        &mut self,
        path: &str,
        engine: Option<&str>,
        until: Instant,
    ) -> Result<Option<Quantities>, TargetError> {
        if let Some(lasting) = self.lasting.get(path) {
            return Ok(lasting.clone());
        }
        let is_lasting = self.tables.on(path, engine).all(|(_, table)| table.once);
        let found = match self.fetch(path, engine, until) {
            Err(TargetError::Fetch { source: FetchError::Status(_), .. }) if is_lasting => None,
            read => read?,
        };
        if is_lasting {
            self.lasting.insert(path.to_owned(), found.clone());
        }
        Ok(found)
    }

    fn fetch(
        &self,
        path: &str,
        engine: Option<&str>,
        until: Instant,
    ) -> Result<Option<Quantities>, TargetError> {
        let failed = |source| TargetError::Fetch { path: path.to_owned(), source };
        let body = http::get(self.address, path, until).map_err(failed)?;
        let format = self.format(path, &body);
        if format == Format::Exposition && !body.is_framed && ends_open(&body.bytes) {
            return Err(failed(FetchError::Truncated));
        }
        let wanted = self.tables.on(path, engine).flat_map(|(_, table)| table.metrics()).collect();
        let page = Page::read(&body.bytes, format, &wanted)
            .map_err(|source| TargetError::Page { path: path.to_owned(), source })?;
        Ok(Quantities::of(&page, path, &self.tables, engine))
    }

    /// The format of what came: as the tables of `path` say, and where they say both, by its first character.
    fn format(&self, path: &str, body: &Body) -> Format {
        let mut formats = self.tables.on(path, None).map(|(_, table)| table.format);
        let opens_json = matches!(body.bytes.trim_ascii_start().first(), Some(b'{' | b'['));
        if opens_json && formats.any(|format| format == Format::Json) {
            Format::Json
        } else {
            Format::Exposition
        }
    }
}

fn resolve(address: &str) -> Result<SocketAddr, TargetError> {
    let bare = address.strip_prefix("http://").unwrap_or(address);
    let bare = bare.strip_suffix(USUAL_PATH).unwrap_or(bare).trim_end_matches('/');
    if let Ok(port) = bare.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let port = bare.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    if bare.contains(['/', ' ', '@']) || !port.is_some_and(|(host, port)| !host.is_empty() && port > 0) {
        return Err(TargetError::Address(address.to_owned()));
    }
    let host = || TargetError::Host(bare.to_owned());
    bare.to_socket_addrs().map_err(|_| host())?.next().ok_or_else(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_understood_as_people_write_it() {
        for written in ["8000", "127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/metrics"] {
            assert_eq!(resolve(written).unwrap().to_string(), "127.0.0.1:8000", "{written}");
        }
        assert_eq!(resolve("http://[::1]:8000").unwrap().to_string(), "[::1]:8000");
        for bad in ["", "vllm", "https://h:1", "h:0", "h:99999", ":80", "http://u@h:80", "h:80/x"] {
            assert!(matches!(resolve(bad), Err(TargetError::Address(_))), "{bad}");
        }
    }

    #[test]
    fn an_unknown_engine_is_said_before_anything_is_asked() {
        let target = EngineTarget {
            address: "1".to_owned(),
            engine: Some("vlm".to_owned()),
            ..EngineTarget::default()
        };
        let error = Scraper::new(&target, Arc::new(Tables::embedded())).unwrap_err();
        assert!(error.to_string().contains("\"vlm\"") && matches!(error, TargetError::Engine(_)));
    }
}
