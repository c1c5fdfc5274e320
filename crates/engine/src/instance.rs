//! The identity of a provider instance of this process.

/// A provider instance of this process: its position in the configuration.
///
/// Lists with one entry per instance are in the order of the configuration; [`InstanceId::of`]
/// finds the entry of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(usize);

/// The instances with which something of a Service may exist; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owners {
    /// The one that serves it, or is asked first.
    pub(crate) first: InstanceId,
    /// Others: it is not known which one served it.
    pub(crate) further: Vec<InstanceId>,
}

// === impl InstanceId ===

impl InstanceId {
    /// Returns the instances of a list with one entry for each.
    pub fn all<T>(list: &[T]) -> impl Iterator<Item = Self> + use<T> {
        (0..list.len()).map(Self)
    }

    /// Returns each instance of such a list with its entry.
    pub fn enumerate<T>(list: &[T]) -> impl Iterator<Item = (Self, &T)> {
        Self::all(list).zip(list)
    }

    /// Returns the entry of this instance in such a list.
    pub fn of<T>(self, list: &[T]) -> Option<&T> {
        list.get(self.0)
    }

    /// Returns the entry of this instance in such a list.
    pub(crate) fn of_mut<T>(self, list: &mut [T]) -> Option<&mut T> {
        list.get_mut(self.0)
    }

    /// Returns the number of the queue's lane whose slots are this instance's.
    pub(crate) fn lane(self) -> usize {
        self.0
    }
}

// === impl Owners ===

impl Owners {
    /// Returns these instances, the first one first; `None` if there are none.
    pub(crate) fn new(instances: impl IntoIterator<Item = InstanceId>) -> Option<Self> {
        let mut instances = instances.into_iter();
        Some(Self {
            first: instances.next()?,
            further: instances.collect(),
        })
    }

    /// Returns this instance alone.
    pub(crate) fn only(first: InstanceId) -> Self {
        Self {
            first,
            further: Vec::new(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = InstanceId> + '_ {
        std::iter::once(self.first).chain(self.further.iter().copied())
    }
}
