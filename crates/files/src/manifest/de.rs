//! Reading a tree with serde, with errors that name field and line.

use std::fmt;
use std::rc::Rc;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::fields::join;
use super::scalar::{Resolved, resolve};
use super::tree::{Entry, Node, Value};

/// Reads a shape from a tree.
///
/// # Errors
/// The first field of the wrong type.
pub(super) fn from_node<T: de::DeserializeOwned>(node: &Node) -> Result<T, Fault> {
    T::deserialize(Reader(node)).map_err(|fault| fault.at(node))
}

/// A field of the wrong type.
#[derive(Debug)]
pub(super) struct Fault {
    /// From the innermost key outwards while the error rises.
    path: Vec<Step>,
    /// The line of the value; 0 while it is unknown.
    pub(super) line: u32,
    /// What is wrong; quotes no value.
    pub(super) message: String,
    /// The value, where it is a single one. The caller knows whether it may be shown.
    pub(super) value: Option<String>,
}

#[derive(Debug)]
enum Step {
    Key(String),
    Index(usize),
}

// === impl Fault ===

impl Fault {
    /// The field as reasons name it: `spec.ports[0].port`.
    pub(super) fn field(&self) -> String {
        let mut field = String::new();
        for step in self.path.iter().rev() {
            match step {
                Step::Key(key) => field = join(&field, key),
                Step::Index(index) => field = format!("{field}[{index}]"),
            }
        }
        field
    }

    /// Fills in the line and value of the node where the error came up.
    fn at(mut self, node: &Node) -> Self {
        if self.line == 0 {
            self.line = node.line;
            if let Value::Scalar { text, .. } = &node.value {
                self.value = Some(text.clone());
            }
        }
        self
    }

    fn under(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            path: Vec::new(),
            line: 0,
            message: message.to_string(),
            value: None,
        }
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format_args!(
            "{} where {expected} is needed",
            kind(&unexpected)
        ))
    }

    fn invalid_value(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format_args!("{} that is not {expected}", kind(&unexpected)))
    }
}

/// A value's kind in words, without the value.
fn kind(unexpected: &de::Unexpected<'_>) -> &'static str {
    match unexpected {
        de::Unexpected::Bool(_) => "true or false",
        de::Unexpected::Unsigned(_) | de::Unexpected::Signed(_) | de::Unexpected::Float(_) => {
            "a number"
        }
        de::Unexpected::Unit | de::Unexpected::Option => "nothing",
        de::Unexpected::Seq => "a list",
        de::Unexpected::Map => "a map",
        _ => "a text",
    }
}

// === impl Reader ===

/// A node on its way into a shape.
struct Reader<'a>(&'a Node);

impl<'a> Reader<'a> {
    fn resolved(&self) -> Option<(Resolved, &'a str)> {
        match &self.0.value {
            Value::Scalar { text, plain: true } => Some((resolve(text), text)),
            Value::Scalar { text, .. } => Some((Resolved::Text, text)),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The error for a value of another kind than is needed.
    fn refuse(&self, needed: &str) -> Fault {
        let found = match (&self.0.value, self.resolved()) {
            (Value::List(_), _) => "a list",
            (Value::Map(_), _) => "a map",
            (_, Some((Resolved::Null, _))) => "nothing",
            (_, Some((Resolved::Bool(_), _))) => "true or false",
            (_, Some((Resolved::Int(_) | Resolved::BigInt(_) | Resolved::Float(_), _))) => {
                "a number"
            }
            _ => "a text",
        };
        <Fault as de::Error>::custom(format_args!("{found} where {needed} is needed")).at(self.0)
    }

    fn whole_number<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.resolved() {
            Some((Resolved::Int(number), _)) => visitor.visit_i64(number),
            Some((Resolved::BigInt(number), _)) => visitor.visit_u64(number),
            _ => Err(self.refuse("a whole number")),
        }
    }

    fn text<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.resolved() {
            Some((Resolved::Text, text)) => visitor.visit_str(text),
            Some((Resolved::Null, _)) | None => Err(self.refuse("a text")),
            Some(_) => Err(self.refuse("a text (in quotes)")),
        }
    }
}

macro_rules! whole_numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let node = self.0;
            self.whole_number(visitor).map_err(|fault| fault.at(node))
        })*
    };
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let node = self.0;
        let read = match (&node.value, self.resolved()) {
            (Value::List(items), _) => visitor.visit_seq(Items {
                items: items.iter(),
                index: 0,
            }),
            (Value::Map(entries), _) => visitor.visit_map(Entries {
                entries: entries.iter(),
                current: None,
            }),
            (_, Some((Resolved::Null, _))) => visitor.visit_unit(),
            (_, Some((Resolved::Bool(truth), _))) => visitor.visit_bool(truth),
            (_, Some((Resolved::Int(number), _))) => visitor.visit_i64(number),
            (_, Some((Resolved::BigInt(number), _))) => visitor.visit_u64(number),
            (_, Some((Resolved::Float(number), _))) => visitor.visit_f64(number),
            (Value::Scalar { text, .. }, _) => visitor.visit_str(text),
        };
        read.map_err(|fault: Fault| fault.at(node))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.0.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.resolved() {
            Some((Resolved::Bool(truth), _)) => visitor.visit_bool(truth),
            _ => Err(self.refuse("true or false")),
        }
    }

    whole_numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let node = self.0;
        self.text(visitor).map_err(|fault| fault.at(node))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Map(_) => self.deserialize_any(visitor),
            Value::List(_) | Value::Scalar { .. } => Err(self.refuse("a map")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::List(_) => self.deserialize_any(visitor),
            Value::Map(_) | Value::Scalar { .. } => Err(self.refuse("a list")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        // Nothing below is checked: that is what keeps shared nodes cheap.
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct enum
        identifier
    }
}

/// The items of a list.
struct Items<'a> {
    items: std::slice::Iter<'a, Rc<Node>>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some(item) = self.items.next() else {
            return Ok(None);
        };
        let index = self.index;
        self.index += 1;
        seed.deserialize(Reader(item))
            .map(Some)
            .map_err(|fault| fault.at(item).under(Step::Index(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The entries of a map.
struct Entries<'a> {
    entries: std::slice::Iter<'a, Entry>,
    current: Option<&'a Entry>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        self.current = self.entries.next();
        let Some(entry) = self.current else {
            return Ok(None);
        };
        let key: StrDeserializer<'_, Fault> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some(entry) = self.current.take() else {
            return Err(<Fault as de::Error>::custom("a value without a key"));
        };
        seed.deserialize(Reader(&entry.value))
            .map_err(|fault| fault.at(&entry.value).under(Step::Key(entry.key.clone())))
    }
}
