//! `Community` (`v1beta1`): names of BGP communities.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::fields::Fields;

/// The names that one object defines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Communities {
    /// What each name stands for.
    pub values: BTreeMap<String, CommunityValue>,
}

/// A community.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommunityValue {
    /// `A:B` (RFC 1997).
    Standard(u16, u16),
    /// `large:A:B:C` (RFC 8092).
    Large(u32, u32, u32),
}

/// What is wrong with a text that should be a community.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommunityError {
    /// It has the form of a standard community, with a part that is no number of 16 bits.
    Section,
    /// It has the form of a large community, with a part that is no number of 32 bits, or does not
    /// begin with `large`.
    Large,
    /// It has neither form.
    Form,
}

// === impl Communities ===

impl Communities {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut values = BTreeMap::new();
        fields.each("communities", |fields| {
            let name = fields.text("name");
            let text = fields.text("value");
            if name.is_none() && !fields.has_other_than_text("name") {
                fields.refuse_unseen("name", "it is missing", "name the community");
            }
            let value = match text.map(str::parse::<CommunityValue>) {
                Some(Ok(value)) => Some(value),
                Some(Err(error)) => {
                    let text = text.unwrap_or_default();
                    fields.refuse("value", text, error.message(), error.remedy());
                    None
                }
                None => {
                    if !fields.has_other_than_text("value") {
                        let remedy = CommunityError::Form.remedy();
                        fields.refuse_unseen("value", "it is missing", remedy);
                    }
                    None
                }
            };
            let (Some(name), Some(value)) = (name, value) else {
                return;
            };
            if values.insert(name.to_owned(), value).is_some() {
                fields.refuse("name", name, "defined twice", "rename one of the two");
            }
        });
        Self { values }
    }
}

// === impl CommunityError ===

impl CommunityError {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Section => "invalid community value: a section is not a number from 0 to 65535",
            Self::Large => {
                "invalid community value: expected a large community, large:A:B:C, with numbers \
                 from 0 to 4294967295"
            }
            Self::Form => "invalid community value: neither A:B nor large:A:B:C",
        }
    }

    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Section | Self::Form => {
                "write two numbers from 0 to 65535, such as 65000:100, or a large community, such \
                 as large:65000:1:2"
            }
            Self::Large => "write large and three numbers, such as large:65000:1:2",
        }
    }
}

// === impl CommunityValue ===

impl FromStr for CommunityValue {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            [high, low] => match (number(high), number(low)) {
                (Some(high), Some(low)) => Ok(Self::Standard(high, low)),
                _ => Err(CommunityError::Section),
            },
            ["large", administrator, one, two] => {
                match (number(administrator), number(one), number(two)) {
                    (Some(administrator), Some(one), Some(two)) => {
                        Ok(Self::Large(administrator, one, two))
                    }
                    _ => Err(CommunityError::Large),
                }
            }
            [_, _, _, _] => Err(CommunityError::Large),
            _ => Err(CommunityError::Form),
        }
    }
}

/// Reads digits only: the standard library also takes a sign.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

impl fmt::Display for CommunityValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(high, low) => write!(f, "{high}:{low}"),
            Self::Large(administrator, one, two) => write!(f, "large:{administrator}:{one}:{two}"),
        }
    }
}
