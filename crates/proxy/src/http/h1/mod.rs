//! HTTP/1
mod body;
mod head;
