//! Sentences that several commands print.

/// Returns a number of things, in the singular or plural of this noun.
pub fn counted(number: usize, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let counts = [0, 1, 2].map(|number| counted(number, "Service"));
        assert_eq!(counts, ["0 Services", "1 Service", "2 Services"]);
    }
}
