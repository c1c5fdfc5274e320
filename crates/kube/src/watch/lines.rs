//! A stream of bytes cut into lines: pure.

/// What came since the last line break.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
}

/// A line grew longer than any object can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// etcd keeps objects of at most 1.5 MiB; JSON is longer, and an admin may have raised the limit.
const LONGEST: usize = 32 * 1024 * 1024;

/// A buffer that one big object has blown up is given back.
const KEPT: usize = 64 * 1024;

// === impl Lines ===

impl Lines {
    /// Takes bytes in, and hands out every line that is complete by now.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..at], &bytes[at + 1..]);
            bytes = rest;
            if self.begun.is_empty() {
                hand_out(line, &mut each);
            } else {
                self.begun.extend_from_slice(line);
                hand_out(&self.begun, &mut each);
                self.begun.clear();
                self.begun.shrink_to(KEPT);
            }
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > LONGEST {
            Err(TooLong)
        } else {
            Ok(())
        }
    }
}

fn hand_out(line: &[u8], each: &mut impl FnMut(&[u8])) {
    if !line.is_empty() {
        each(line);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_come_out_the_same_however_the_bytes_arrive(
            lines in proptest::collection::vec("[a-z]{0,12}", 0..20),
            cuts in proptest::collection::vec(0usize..200, 0..20),
        ) {
            let whole: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let mut got = Vec::new();
            let mut buffer = Lines::default();
            for pair in cuts.windows(2) {
                let piece = &whole.as_bytes()[pair[0]..pair[1]];
                buffer.push(piece,
                    |line| got.push(String::from_utf8(line.to_vec()).unwrap())).unwrap();
            }
            let expected: Vec<String> = lines.into_iter().filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut buffer = Lines::default();
        let piece = vec![b'x'; 1024 * 1024];
        let refused = (0..64).any(|_| buffer.push(&piece, |_| ()).is_err());
        assert!(refused);
    }
}
