//! Addresses of an API, and paths under them.

use reqwest::Url;

/// Parses an address of HTTP, and drops its query and fragment.
pub fn http_url(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text.trim()).map_err(|why| format!("{text:?}: {why}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("{text:?}: not an address of HTTP"));
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// Returns the address with further segments, each of them escaped.
pub fn joined(url: &Url, segments: &[&str]) -> Url {
    let mut url = url.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}
