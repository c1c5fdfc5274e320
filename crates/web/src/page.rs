//! The status page: files that are part of the program, served as they are.
//!
//! The page gets its data from the JSON API like any client. Nothing is filled in on this side,
//! so no text of a user can become markup here.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;

/// An embedded file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

/// The page itself.
pub(crate) const INDEX: Asset = Asset {
    name: "index.html",
    kind: "text/html; charset=utf-8",
    text: include_str!("../assets/index.html"),
};

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What the page loads.
const ASSETS: &[Asset] = &[
    Asset {
        name: "style.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("../assets/style.css"),
    },
    Asset {
        name: "app.js",
        kind: SCRIPT,
        text: include_str!("../assets/app.js"),
    },
    Asset {
        name: "card.js",
        kind: SCRIPT,
        text: include_str!("../assets/card.js"),
    },
    Asset {
        name: "dom.js",
        kind: SCRIPT,
        text: include_str!("../assets/dom.js"),
    },
    Asset {
        name: "routers.js",
        kind: SCRIPT,
        text: include_str!("../assets/routers.js"),
    },
    Asset {
        name: "words.js",
        kind: SCRIPT,
        text: include_str!("../assets/words.js"),
    },
    Asset {
        name: "icon.svg",
        kind: "image/svg+xml",
        text: include_str!("../assets/icon.svg"),
    },
];

/// The file of a name.
pub(crate) fn asset(name: &str) -> Result<Asset, ApiError> {
    let found = ASSETS.iter().find(|asset| asset.name == name);
    found
        .copied()
        .ok_or_else(|| ApiError::not_found("there is no such file"))
}

impl IntoResponse for Asset {
    fn into_response(self) -> Response {
        // `no-cache`: a page that outlives an upgrade must not run the old program's script.
        let headers = [(CONTENT_TYPE, self.kind), (CACHE_CONTROL, "no-cache")];
        (headers, self.text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that opens at once on a bad line.
    const MOST_BYTES: usize = 68 * 1024;

    #[test]
    fn the_whole_page_is_small() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.text.len()).sum();
        let bytes = bytes + INDEX.text.len();
        assert!(bytes < MOST_BYTES, "the page weighs {bytes} bytes");
    }

    #[test]
    fn everything_the_page_names_is_there() {
        let names = INDEX
            .text
            .split('"')
            .filter_map(|part| part.strip_prefix("/assets/"));
        let names: Vec<_> = names.collect();
        assert!(names.len() >= 3, "{names:?}");
        for name in names {
            assert!(asset(name).is_ok(), "{name} is not embedded");
        }
    }

    #[test]
    fn the_scripts_never_turn_text_into_markup_or_code() {
        for asset in ASSETS.iter().chain([&INDEX]) {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!asset.text.contains(word), "{word} in {}", asset.name);
            }
        }
    }
}
