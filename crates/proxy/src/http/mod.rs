//! HTTP/1.1 and HTTP/2.
mod fields;
mod h1;
mod refusal;
