//! Temperature, clocks, fans, power: one plausible idle-to-busy card, so that clients have something to print.

use std::ffi::{c_int, c_uint, c_ulonglong};

use crate::abi::{Out, Temperature, version_of};
use crate::code::{Answer, Code};
use crate::entry::device_calls;

/// Clocks by NVML's numbers: graphics, SM, memory, video; megahertz.
const CLOCKS_MHZ: [c_uint; 4] = [1755, 1755, 2619, 1500];
/// Their maxima.
const MAX_CLOCKS_MHZ: [c_uint; 4] = [1980, 1980, 2619, 1545];
/// Temperatures by NVML's threshold numbers: shutdown, slowdown, memory, GPU maximum; degrees Celsius.
const THRESHOLDS_C: [c_uint; 4] = [95, 90, 95, 87];
/// Power limit of an H100 SXM, milliwatts.
const LIMIT_MW: c_uint = 700_000;
/// The least that may be set.
const LEAST_LIMIT_MW: c_uint = 200_000;
/// Performance state of a busy card.
const P0: c_uint = 0;

device_calls! {
    fn nvmlDeviceGetTemperature(target, _sensor: c_uint, celsius: Out<c_uint>) {
        target.whole()?;
        celsius.set(target.gpu.temperature_c)
    }
    fn nvmlDeviceGetTemperatureV(target, record: Out<Temperature>) {
        target.whole()?;
        let asked = record.get()?;
        if asked.version != version_of::<Temperature>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        record.set(Temperature { celsius: target.gpu.temperature_c as c_int, ..asked })
    }
    fn nvmlDeviceGetTemperatureThreshold(target, kind: c_uint, celsius: Out<c_uint>) {
        target.whole()?;
        choose(&THRESHOLDS_C, kind, &celsius)
    }
    fn nvmlDeviceGetClockInfo(target, kind: c_uint, mhz: Out<c_uint>) {
        target.whole()?;
        choose(&CLOCKS_MHZ, kind, &mhz)
    }
    fn nvmlDeviceGetClock(target, kind: c_uint, _id: c_uint, mhz: Out<c_uint>) {
        target.whole()?;
        choose(&CLOCKS_MHZ, kind, &mhz)
    }
    fn nvmlDeviceGetMaxClockInfo(target, kind: c_uint, mhz: Out<c_uint>) {
        target.whole()?;
        choose(&MAX_CLOCKS_MHZ, kind, &mhz)
    }
    fn nvmlDeviceGetMaxCustomerBoostClock(target, kind: c_uint, mhz: Out<c_uint>) {
        target.whole()?;
        choose(&MAX_CLOCKS_MHZ, kind, &mhz)
    }
    fn nvmlDeviceGetApplicationsClock(target, kind: c_uint, mhz: Out<c_uint>) {
        target.whole()?;
        choose(&MAX_CLOCKS_MHZ, kind, &mhz)
    }
    fn nvmlDeviceGetDefaultApplicationsClock(target, kind: c_uint, mhz: Out<c_uint>) {
        target.whole()?;
        choose(&MAX_CLOCKS_MHZ, kind, &mhz)
    }
    fn nvmlDeviceGetCurrentClocksThrottleReasons(target, reasons: Out<c_ulonglong>) {
        target.whole()?;
        reasons.set(0)
    }
    fn nvmlDeviceGetCurrentClocksEventReasons(target, reasons: Out<c_ulonglong>) {
        target.whole()?;
        reasons.set(0)
    }
    fn nvmlDeviceGetSupportedClocksThrottleReasons(_target, reasons: Out<c_ulonglong>) { reasons.set(0x1ff) }
    fn nvmlDeviceGetSupportedClocksEventReasons(_target, reasons: Out<c_ulonglong>) { reasons.set(0x1ff) }
    // Passive coolers, as in servers.
    fn nvmlDeviceGetFanSpeed(_target, _percent: Out<c_uint>) { Err(Code::NOT_SUPPORTED) }
    fn nvmlDeviceGetFanSpeed_v2(_target, _fan: c_uint, _percent: Out<c_uint>) { Err(Code::NOT_SUPPORTED) }
    fn nvmlDeviceGetNumFans(_target, fans: Out<c_uint>) { fans.set(0) }
    fn nvmlDeviceGetPowerUsage(target, mw: Out<c_uint>) { target.whole()?; mw.set(target.gpu.power_mw) }
    fn nvmlDeviceGetEnforcedPowerLimit(target, mw: Out<c_uint>) { target.whole()?; mw.set(LIMIT_MW) }
    fn nvmlDeviceGetPowerManagementMode(target, mode: Out<c_uint>) { target.whole()?; mode.set(1) }
    fn nvmlDeviceGetPowerManagementLimit(target, mw: Out<c_uint>) { target.whole()?; mw.set(LIMIT_MW) }
    fn nvmlDeviceGetPowerManagementDefaultLimit(target, mw: Out<c_uint>) { target.whole()?; mw.set(LIMIT_MW) }
    fn nvmlDeviceGetPowerManagementLimitConstraints(target, least: Out<c_uint>, most: Out<c_uint>) {
        target.whole()?;
        least.set(LEAST_LIMIT_MW)?;
        most.set(LIMIT_MW)
    }
    fn nvmlDeviceGetTotalEnergyConsumption(target, mj: Out<c_ulonglong>) {
        target.whole()?;
        // Milliwatts over the scenario's seconds.
        mj.set(u64::from(target.gpu.power_mw) * (target.at_ms.max(0) as u64 / 1000))
    }
    fn nvmlDeviceGetPowerState(_target, state: Out<c_uint>) { state.set(P0) }
    fn nvmlDeviceGetPerformanceState(_target, state: Out<c_uint>) { state.set(P0) }
}

fn choose(table: &[c_uint], place: c_uint, value: &Out<c_uint>) -> Answer {
    value.set(*table.get(place as usize).ok_or(Code::INVALID_ARGUMENT)?)
}
