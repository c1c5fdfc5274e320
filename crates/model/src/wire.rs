//! Wire shapes.
