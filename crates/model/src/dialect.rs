//! Annotation vocabularies.
