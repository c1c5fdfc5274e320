//! Reads as much of an ELF file as shows whether it runs from nothing but itself, and where.
//!
//! Must never trust a number in the file: a broken one is an error, not a panic.

use anyhow::{Context as _, bail};

/// A program, as far as an image has to know it.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    /// What it runs on.
    pub machine: Machine,
    /// The program that would have to load it; `None` for a static one.
    pub interpreter: Option<String>,
    /// How many shared libraries it asks for.
    pub libraries: usize,
}

/// Processors that Landfall is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86.
    X86,
    /// 64-bit Arm.
    Arm,
}

const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const MACHINE_X86: u16 = 62;
const MACHINE_ARM: u16 = 183;
const SEGMENT_DYNAMIC: u32 = 2;
const SEGMENT_INTERPRETER: u32 = 3;
const ENTRY_END: u64 = 0;
const ENTRY_NEEDED: u64 = 1;
/// Bytes of an entry of the dynamic section: a tag and a value.
const ENTRY: usize = 16;

// === impl Elf ===

impl Elf {
    /// Reads headers and the dynamic section.
    pub fn read(bytes: &[u8]) -> anyhow::Result<Self> {
        if bytes.get(..4) != Some(MAGIC) {
            bail!("it is no ELF file");
        }
        if (bytes.get(4), bytes.get(5)) != (Some(&CLASS_64), Some(&LITTLE_ENDIAN)) {
            bail!("it is not for a 64-bit little-endian processor");
        }
        let machine = match u16_at(bytes, 18)? {
            MACHINE_X86 => Machine::X86,
            MACHINE_ARM => Machine::Arm,
            other => {
                bail!("it is for a processor that images are not made for (ELF machine {other})")
            }
        };
        let mut elf = Self {
            machine,
            interpreter: None,
            libraries: 0,
        };
        let (table, size, count) = (
            place(u64_at(bytes, 32)?)?,
            usize::from(u16_at(bytes, 54)?),
            usize::from(u16_at(bytes, 56)?),
        );
        for index in 0..count {
            let header = index
                .checked_mul(size)
                .and_then(|offset| offset.checked_add(table))
                .context(OUTSIDE)?;
            let kind = u32_at(bytes, header)?;
            if kind != SEGMENT_DYNAMIC && kind != SEGMENT_INTERPRETER {
                continue;
            }
            let start = place(u64_at(bytes, header.saturating_add(8))?)?;
            let length = place(u64_at(bytes, header.saturating_add(32))?)?;
            let content = start
                .checked_add(length)
                .and_then(|end| bytes.get(start..end))
                .context(OUTSIDE)?;
            if kind == SEGMENT_INTERPRETER {
                let text = content.split(|byte| *byte == 0).next().unwrap_or_default();
                elf.interpreter = Some(String::from_utf8_lossy(text).into_owned());
            } else {
                elf.libraries = content
                    .chunks_exact(ENTRY)
                    .map(|entry| u64_at(entry, 0))
                    .take_while(|tag| !matches!(tag, Ok(ENTRY_END)))
                    .filter(|tag| matches!(tag, Ok(ENTRY_NEEDED)))
                    .count();
            }
        }
        Ok(elf)
    }

    /// Whether it runs where there is nothing but itself.
    pub fn is_static(&self) -> bool {
        self.interpreter.is_none() && self.libraries == 0
    }
}

impl Machine {
    /// What images call it.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }
}

const OUTSIDE: &str = "it is cut off: a header points outside the file";

fn place(offset: u64) -> anyhow::Result<usize> {
    usize::try_from(offset).context(OUTSIDE)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> anyhow::Result<[u8; N]> {
    let field = at.checked_add(N).and_then(|end| bytes.get(at..end));
    field
        .and_then(|field| field.try_into().ok())
        .context(OUTSIDE)
}

fn u16_at(bytes: &[u8], at: usize) -> anyhow::Result<u16> {
    field(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> anyhow::Result<u32> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> anyhow::Result<u64> {
    field(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The smallest file with these segments: (type, content).
    pub fn file(machine: u16, segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 * segments.len()];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&u16::try_from(segments.len()).unwrap().to_le_bytes());
        for (index, (kind, content)) in segments.iter().enumerate() {
            let header = 64 + 56 * index;
            let start = bytes.len() as u64;
            bytes[header..header + 4].copy_from_slice(&kind.to_le_bytes());
            bytes[header + 8..header + 16].copy_from_slice(&start.to_le_bytes());
            bytes[header + 32..header + 40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            bytes.extend_from_slice(content);
        }
        bytes
    }

    fn entries(tags: &[u64]) -> Vec<u8> {
        tags.iter()
            .flat_map(|tag| [*tag, 7])
            .flat_map(u64::to_le_bytes)
            .collect()
    }

    #[test]
    fn a_program_without_loader_and_libraries_is_static_although_it_has_a_dynamic_section() {
        let relocations_only = entries(&[5, 6, ENTRY_END, ENTRY_NEEDED]);
        let elf = Elf::read(&file(MACHINE_ARM, &[(1, b"code"), (2, &relocations_only)])).unwrap();
        assert_eq!(
            elf,
            Elf {
                machine: Machine::Arm,
                interpreter: None,
                libraries: 0
            }
        );
        assert!(elf.is_static());
        assert_eq!(elf.machine.architecture(), "arm64");
    }

    #[test]
    fn a_loader_and_libraries_are_found() {
        let needed = entries(&[ENTRY_NEEDED, ENTRY_NEEDED, ENTRY_END]);
        let bytes = file(MACHINE_X86, &[(3, b"/lib64/ld.so\0"), (2, &needed)]);
        let elf = Elf::read(&bytes).unwrap();
        assert_eq!(elf.interpreter.as_deref(), Some("/lib64/ld.so"));
        assert_eq!(elf.libraries, 2);
        assert!(!elf.is_static());
    }

    #[test]
    fn the_program_that_runs_this_test_is_read_as_the_loader_reads_it() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::read(&bytes).unwrap();
        assert_eq!(
            elf.machine.architecture(),
            match std::env::consts::ARCH {
                "x86_64" => "amd64",
                _ => "arm64",
            }
        );
        assert_eq!(elf.is_static(), cfg!(target_feature = "crt-static"));
    }

    #[test]
    fn what_is_no_program_or_cut_off_anywhere_is_refused_or_read_and_never_a_panic() {
        let error = |bytes: &[u8]| Elf::read(bytes).unwrap_err().to_string();
        assert_eq!(error(b"#!/bin/sh\n"), "it is no ELF file");
        assert_eq!(error(b""), "it is no ELF file");
        assert!(error(&file(8, &[])).contains("machine 8"));
        let whole = file(MACHINE_X86, &[(2, &entries(&[ENTRY_NEEDED])), (3, b"/x")]);
        for length in 4..whole.len() {
            assert!(Elf::read(&whole[..length]).is_err(), "{length} bytes");
        }
        let mut wild = whole;
        wild[72..80].fill(0xff);
        assert_eq!(error(&wild), OUTSIDE);
    }
}
