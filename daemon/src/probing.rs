//! The probe as the configuration wants it.

use std::time::Duration;

use ebbtide_probe::{EngineTarget, HostGpuConfig, ProbeConfig, SourceConfig};

use crate::config::{EngineSection, ProbeSection, SourceChoice};

pub(crate) fn config(section: &ProbeSection, next_seq: u64) -> ProbeConfig {
    let source = match section.source {
        SourceChoice::Nvml => SourceConfig::Nvml { library: section.library.clone() },
        SourceChoice::Host => {
            let host = HostGpuConfig {
                total: section.host_total(),
                only: section.host_pid,
                ..HostGpuConfig::default()
            };
            SourceConfig::Host(host)
        }
    };
    ProbeConfig {
        interval: Duration::from_millis(section.interval_ms),
        list_interval: Duration::from_millis(section.list_interval_ms),
        health_interval: Duration::from_millis(section.health_interval_ms),
        nvml_budget: Duration::from_millis(section.nvml_budget_ms_per_min),
        source,
        engine_dir: section.engine_dir.clone(),
        discover_engines: section.discover_engines,
        engine_interval: Duration::from_millis(section.engine_interval_ms),
        engine_tables: section.engine_tables.clone(),
        engines: section.engines.iter().map(target).collect(),
        start_seq: next_seq,
        ..ProbeConfig::default()
    }
}

fn target(section: &EngineSection) -> EngineTarget {
    EngineTarget {
        address: section.address.clone(),
        engine: section.engine.clone(),
        pid: section.pid,
        kv_bytes_per_token: section.kv_bytes_per_token,
    }
}
