//! The probe as the configuration wants it.

use std::time::Duration;

use ebbtide_probe::{HostGpuConfig, ProbeConfig, SourceConfig};

use crate::config::{ProbeSection, SourceChoice};

pub(crate) fn config(section: &ProbeSection, next_seq: u64) -> ProbeConfig {
    let source = match section.source {
        SourceChoice::Nvml => SourceConfig::Nvml { library: section.library.clone() },
        SourceChoice::Host => {
            SourceConfig::Host(HostGpuConfig { total: section.host_total(), ..HostGpuConfig::default() })
        }
    };
    ProbeConfig {
        interval: Duration::from_millis(section.interval_ms),
        list_interval: Duration::from_millis(section.list_interval_ms),
        health_interval: Duration::from_millis(section.health_interval_ms),
        nvml_budget: Duration::from_millis(section.nvml_budget_ms_per_min),
        source,
        engine_dir: section.engine_dir.clone(),
        start_seq: next_seq,
        ..ProbeConfig::default()
    }
}
