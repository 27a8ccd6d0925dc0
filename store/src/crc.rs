//! The checksum of blobs and migrations.

/// CRC-32 as in IEEE 802.3 and zlib: reflected polynomial 0xEDB88320, initial value and final XOR all ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crc32(u32);

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
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
        Self(bytes.iter().fold(self.0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8)))
    }

    /// The value to store.
    pub(crate) const fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        // "123456789" gives CBF43926 in every catalogue of CRC parameters (CRC-32/ISO-HDLC).
        assert_eq!(Crc32::new().with(b"12345").with(b"6789").value(), 0xCBF4_3926);
    }
}
