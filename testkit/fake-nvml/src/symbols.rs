//! The symbols this library exports, in the order in which they are counted.

/// Every exported symbol, sorted. A call that is missing here does not compile; a test looks up each in the library.
pub const SYMBOLS: &[&str] = &[
    "nvmlDeviceClearFieldValues",
    "nvmlDeviceGetAccountingBufferSize",
    "nvmlDeviceGetAccountingMode",
    "nvmlDeviceGetAccountingPids",
    "nvmlDeviceGetAccountingStats",
    "nvmlDeviceGetApplicationsClock",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetAttributes",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetBoardId",
    "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetClock",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetConfComputeMemSizeInfo",
    "nvmlDeviceGetConfComputeProtectedMemoryUsage",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetDefaultApplicationsClock",
    "nvmlDeviceGetDefaultEccMode",
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
    "nvmlDeviceGetDisplayActive",
    "nvmlDeviceGetDisplayMode",
    "nvmlDeviceGetDriverModel",
    "nvmlDeviceGetDriverModel_v2",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetFanSpeed_v2",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGspFirmwareMode",
    "nvmlDeviceGetGspFirmwareVersion",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByPciBusId",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetInforomImageVersion",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMaxCustomerBoostClock",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMemoryErrorCounter",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMultiGpuBoard",
    "nvmlDeviceGetName",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetPciInfoExt",
    "nvmlDeviceGetPciInfo_v2",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetPcieThroughput",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetPowerManagementMode",
    "nvmlDeviceGetPowerState",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetProcessesUtilizationInfo",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRetiredPages",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetRetiredPages_v2",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetRunningProcessDetailList",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetSupportedClocksThrottleReasons",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceIsMigDeviceHandle",
    "nvmlDeviceRegisterEvents",
    "nvmlErrorString",
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlEventSetWait",
    "nvmlEventSetWait_v2",
    "nvmlInit",
    "nvmlInitWithFlags",
    "nvmlInit_v2",
    "nvmlInternalGetExportTable",
    "nvmlShutdown",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetProcessName",
];

/// One of [`SYMBOLS`], by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol(usize);

impl Symbol {
    /// Finds a symbol while compiling.
    pub(crate) const fn named(name: &str) -> Self {
        let mut place = 0;
        while place < SYMBOLS.len() {
            if same(SYMBOLS[place].as_bytes(), name.as_bytes()) {
                return Self(place);
            }
            place += 1;
        }
        panic!("a call is exported that SYMBOLS does not name")
    }

    pub(crate) const fn place(self) -> usize {
        self.0
    }

    pub(crate) const fn name(self) -> &'static str {
        SYMBOLS[self.0]
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut place = 0;
    while place < a.len() {
        if a[place] != b[place] {
            return false;
        }
        place += 1;
    }
    true
}
