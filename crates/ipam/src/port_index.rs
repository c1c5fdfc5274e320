//! Which addresses of one sharing group still have given ports open: the lowest, fast.
//!
//! A binary trie over the bits of the addresses. Each branch knows the ports that are used at
//! *every* address beneath it, so a search leaves out at once whatever can't fit: finding the
//! lowest address for a Service with one port takes one walk down, however many addresses the
//! group has. With several ports the search may look into branches where each port is open
//! somewhere, though never all of them at one address.

use std::collections::BTreeSet;
use std::mem;

use landfall_model::ListenerKey;

/// Addresses of a group, as numbers, with the ports used there.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortIndex {
    root: Option<Node>,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Leaf),
    Branch(Box<Branch>),
}

#[derive(Clone, Debug)]
struct Leaf {
    address: u128,
    /// Sorted.
    ports: Vec<ListenerKey>,
}

#[derive(Clone, Debug)]
struct Branch {
    /// The highest bit in which the addresses beneath differ, counted from the lowest.
    bit: u32,
    /// One address beneath: all agree with it above `bit`.
    sample: u128,
    /// Ports used at every address beneath. Sorted.
    common: Vec<ListenerKey>,
    /// Addresses with a 0 in `bit`.
    low: Node,
    /// Addresses with a 1 in `bit`.
    high: Node,
}

// === impl PortIndex ===

impl PortIndex {
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Adds ports at an address, which is entered if it is new.
    pub(crate) fn add(&mut self, address: u128, ports: &BTreeSet<ListenerKey>) {
        let root = self.root.get_or_insert_with(|| Node::leaf(address));
        root.enter(address);
        root.change(address, |used| {
            for port in ports {
                if let Err(position) = used.binary_search(port) {
                    used.insert(position, *port);
                }
            }
        });
    }

    /// Takes ports away at an address, which stays.
    pub(crate) fn subtract(&mut self, address: u128, ports: &BTreeSet<ListenerKey>) {
        if let Some(root) = &mut self.root {
            root.change(address, |used| used.retain(|port| !ports.contains(port)));
        }
    }

    /// Takes an address out.
    pub(crate) fn remove(&mut self, address: u128) {
        if self.root.as_mut().is_some_and(|root| root.remove(address)) {
            self.root = None;
        }
    }

    /// The lowest address at which none of the ports is used.
    pub(crate) fn lowest_open(&self, ports: &BTreeSet<ListenerKey>) -> Option<u128> {
        self.root.as_ref().and_then(|root| root.lowest_open(ports))
    }
}

// === impl Node ===

impl Node {
    fn leaf(address: u128) -> Self {
        Self::Leaf(Leaf {
            address,
            ports: Vec::new(),
        })
    }

    /// Ports used at every address of this node.
    fn used(&self) -> &[ListenerKey] {
        match self {
            Self::Leaf(leaf) => &leaf.ports,
            Self::Branch(branch) => &branch.common,
        }
    }

    /// Makes a leaf for the address unless there is one. Ports beneath the new branches are not
    /// compared: the change that follows walks the same path and does so.
    fn enter(&mut self, address: u128) {
        let difference = match self {
            Self::Leaf(leaf) => leaf.address ^ address,
            Self::Branch(branch) => {
                let difference = branch.sample ^ address;
                if difference >> branch.bit >> 1 == 0 {
                    branch.child(address).enter(address);
                    return;
                }
                difference
            }
        };
        let Some(bit) = difference.checked_ilog2() else {
            return;
        };
        let old = mem::replace(self, Self::leaf(address));
        let new = Self::leaf(address);
        let (low, high) = if has_bit(address, bit) {
            (old, new)
        } else {
            (new, old)
        };
        let branch = Branch {
            bit,
            sample: address,
            common: Vec::new(),
            low,
            high,
        };
        *self = Self::Branch(Box::new(branch));
    }

    fn change(&mut self, address: u128, edit: impl FnOnce(&mut Vec<ListenerKey>)) {
        // A loop down and back up would need a stack; the depth is at most 128.
        fn walk(node: &mut Node, address: u128, edit: &mut dyn FnMut(&mut Vec<ListenerKey>)) {
            match node {
                Node::Leaf(leaf) if leaf.address == address => edit(&mut leaf.ports),
                Node::Leaf(_) => {}
                Node::Branch(branch) => {
                    walk(branch.child(address), address, edit);
                    branch.compare();
                }
            }
        }
        let mut edit = Some(edit);
        walk(self, address, &mut |ports| {
            if let Some(edit) = edit.take() {
                edit(ports);
            }
        });
    }

    /// Takes the address out from beneath this node; true when this node itself is its leaf.
    fn remove(&mut self, address: u128) -> bool {
        let branch = match self {
            Self::Leaf(leaf) => return leaf.address == address,
            Self::Branch(branch) => branch,
        };
        if branch.child(address).remove(address) {
            let other = if has_bit(address, branch.bit) {
                &mut branch.low
            } else {
                &mut branch.high
            };
            let other = mem::replace(other, Self::leaf(address));
            *self = other;
        } else {
            branch.compare();
        }
        false
    }

    fn lowest_open(&self, ports: &BTreeSet<ListenerKey>) -> Option<u128> {
        if ports
            .iter()
            .any(|port| self.used().binary_search(port).is_ok())
        {
            return None;
        }
        match self {
            Self::Leaf(leaf) => Some(leaf.address),
            Self::Branch(branch) => branch
                .low
                .lowest_open(ports)
                .or_else(|| branch.high.lowest_open(ports)),
        }
    }
}

// === impl Branch ===

impl Branch {
    fn child(&mut self, address: u128) -> &mut Node {
        if has_bit(address, self.bit) {
            &mut self.high
        } else {
            &mut self.low
        }
    }

    fn compare(&mut self) {
        let (mut few, mut many) = (self.low.used(), self.high.used());
        if few.len() > many.len() {
            mem::swap(&mut few, &mut many);
        }
        self.common = few
            .iter()
            .filter(|port| many.binary_search(port).is_ok())
            .copied()
            .collect();
    }
}

fn has_bit(address: u128, bit: u32) -> bool {
    address >> bit & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use landfall_model::Protocol;
    use proptest::prelude::*;

    use super::*;

    fn ports(numbers: &[u16]) -> BTreeSet<ListenerKey> {
        numbers
            .iter()
            .map(|number| ListenerKey {
                protocol: Protocol::Tcp,
                port: (*number).try_into().unwrap(),
            })
            .collect()
    }

    #[test]
    fn the_lowest_address_with_the_port_open_is_found_behind_many_that_use_it() {
        let mut index = PortIndex::default();
        for address in 0..1000 {
            index.add(address, &ports(&[443]));
        }
        assert_eq!(index.lowest_open(&ports(&[443])), None);
        index.add(700, &ports(&[80]));
        index.subtract(700, &ports(&[443]));
        assert_eq!(index.lowest_open(&ports(&[443])), Some(700));
        assert_eq!(index.lowest_open(&ports(&[80, 443])), None);
        assert_eq!(index.lowest_open(&ports(&[80])), Some(0));
    }

    #[test]
    fn an_index_without_addresses_is_empty_again() {
        let mut index = PortIndex::default();
        assert!(index.is_empty());
        index.add(u128::MAX, &ports(&[1]));
        index.add(0, &ports(&[1]));
        index.remove(u128::MAX);
        assert!(!index.is_empty());
        index.remove(7);
        index.remove(0);
        assert!(index.is_empty());
        assert_eq!(index.lowest_open(&ports(&[])), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u128, Vec<u16>),
        Subtract(u128, Vec<u16>),
        Remove(u128),
    }

    fn step() -> impl Strategy<Value = Step> {
        let address = prop_oneof![0u128..24, (0u128..8).prop_map(|n| u128::MAX << (n * 16))];
        let numbers = prop::collection::vec(1u16..6, 0..4);
        prop_oneof![
            4 => (address.clone(), numbers.clone()).prop_map(|(a, p)| Step::Add(a, p)),
            2 => (address.clone(), numbers).prop_map(|(a, p)| Step::Subtract(a, p)),
            1 => address.prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn any_sequence_of_changes_agrees_with_a_plain_map(
            steps in prop::collection::vec(step(), 0..200),
            wanted in prop::collection::vec(1u16..6, 0..3),
        ) {
            let wanted = ports(&wanted);
            let mut index = PortIndex::default();
            let mut model: BTreeMap<u128, BTreeSet<ListenerKey>> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Add(address, numbers) => {
                        index.add(address, &ports(&numbers));
                        model.entry(address).or_default().extend(ports(&numbers));
                    }
                    Step::Subtract(address, numbers) => {
                        index.subtract(address, &ports(&numbers));
                        if let Some(used) = model.get_mut(&address) {
                            used.retain(|port| !ports(&numbers).contains(port));
                        }
                    }
                    Step::Remove(address) => {
                        index.remove(address);
                        model.remove(&address);
                    }
                }
                let expected =
                    model.iter().find(|(_, used)| used.is_disjoint(&wanted)).map(|(a, _)| *a);
                prop_assert_eq!(index.lowest_open(&wanted), expected);
                prop_assert_eq!(index.is_empty(), model.is_empty());
            }
        }
    }
}
