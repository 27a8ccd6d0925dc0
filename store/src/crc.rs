//! The checksums: CRC-32 of ticks and migrations, CRC-32C of everything sealed.

/// CRC-32 as in IEEE 802.3 and zlib: reflected polynomial 0xEDB88320, initial value and final XOR all ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crc32(u32);

/// CRC-32C as in RFC 3720 and iSCSI: reflected polynomial 0x82F63B78, initial value and final XOR all ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crc32c(u32);

const TABLE: [u32; 256] = table(0xEDB8_8320);
const CASTAGNOLI: [u32; 256] = table(0x82F6_3B78);

const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ polynomial } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

impl Crc32 {
    /// The checksum of nothing yet.
    pub(crate) const fn new() -> Self {
        Self(u32::MAX)
    }

    /// The checksum after `bytes` more.
    pub(crate) fn with(self, bytes: &[u8]) -> Self {
        Self(run(&TABLE, self.0, bytes))
    }

    /// The value to store.
    pub(crate) const fn value(self) -> u32 {
        !self.0
    }
}

impl Crc32c {
    /// The checksum of nothing yet.
    pub(crate) const fn new() -> Self {
        Self(u32::MAX)
    }

    /// The checksum after `bytes` more.
    pub(crate) fn with(self, bytes: &[u8]) -> Self {
        Self(run(&CASTAGNOLI, self.0, bytes))
    }

    /// The value to store.
    pub(crate) const fn value(self) -> u32 {
        !self.0
    }
}

fn run(table: &[u32; 256], start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |crc, byte| table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        // "123456789" gives CBF43926 in every catalogue of CRC parameters (CRC-32/ISO-HDLC).
        assert_eq!(Crc32::new().with(b"12345").with(b"6789").value(), 0xCBF4_3926);
        // E3069283 for CRC-32/ISCSI.
        assert_eq!(Crc32c::new().with(b"12345").with(b"6789").value(), 0xE306_9283);
    }
}
