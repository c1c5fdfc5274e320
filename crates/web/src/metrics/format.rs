//! The two text formats of a scrape, and which one a client asks for.

use std::fmt::Write as _;

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0, which Prometheus asks for.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4, which every tool reads.
    Text,
}

impl Format {
    /// Chooses the format by the values of the `Accept` header (RFC 9110, section 12.5.1):
    /// `OpenMetrics` where it is named and nothing that the text format fits is preferred to it.
    pub fn accepted<'a>(accept: impl IntoIterator<Item = &'a str>) -> Self {
        let mut best = (Self::Text, 0.0);
        for range in accept.into_iter().flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let format = match media.as_str() {
                "application/openmetrics-text" => Self::OpenMetrics,
                "text/plain" | "text/*" | "*/*" => Self::Text,
                _ => continue,
            };
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            let weight = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            let named = format == Self::OpenMetrics;
            if weight > best.1 || (named && weight > 0.0 && weight >= best.1) {
                best = (format, weight);
            }
        }
        best.0
    }

    /// The media type that names the format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns `OpenMetrics` text in this format.
    pub fn convert(self, open: String) -> String {
        match self {
            Self::OpenMetrics => open,
            Self::Text => text(&open),
        }
    }
}

/// Returns `OpenMetrics` as text of version 0.0.4. There the name of a family is that of its
/// samples, and there is neither the type `info`, nor a unit, nor an end mark.
fn text(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    let mut help = None;
    for line in open.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let (word, rest) = comment.split_once(' ').unwrap_or((comment, ""));
        let (family, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "HELP" => help = Some(rest),
            "TYPE" => {
                let (end, kind) = match rest {
                    "counter" => ("_total", rest),
                    "info" => ("_info", "gauge"),
                    _ => ("", rest),
                };
                // Writing into a string can't fail.
                if let Some(help) = help.take() {
                    let _ = writeln!(out, "# HELP {family}{end} {help}");
                }
                let _ = writeln!(out, "# TYPE {family}{end} {kind}");
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (&[prometheus][..], Format::OpenMetrics),
            (&["application/openmetrics-text"], Format::OpenMetrics),
            (
                &["text/plain, application/openmetrics-text"],
                Format::OpenMetrics,
            ),
            (
                &["text/plain", "Application/OpenMetrics-Text; q=0.9"],
                Format::Text,
            ),
            (&["application/openmetrics-text;q=0, */*"], Format::Text),
            (&["application/openmetrics-text;q=zero"], Format::Text),
            (&["text/plain"], Format::Text),
            (&["*/*"], Format::Text),
            (&["application/json"], Format::Text),
            (&[], Format::Text),
        ] {
            assert_eq!(
                Format::accepted(accept.iter().copied()),
                format,
                "{accept:?}"
            );
        }
    }

    #[test]
    fn families_are_named_as_their_samples_in_the_text_format() {
        let open = "\
# HELP a_bytes Bytes of # HELP.
# TYPE a_bytes counter
# UNIT a_bytes bytes
a_bytes_total{x=\"# TYPE\"} 1
# HELP b What runs.
# TYPE b info
b_info{version=\"1\"} 1
# HELP c A gauge.
# TYPE c gauge
c 1
# EOF
";
        let expected = "\
# HELP a_bytes_total Bytes of # HELP.
# TYPE a_bytes_total counter
a_bytes_total{x=\"# TYPE\"} 1
# HELP b_info What runs.
# TYPE b_info gauge
b_info{version=\"1\"} 1
# HELP c A gauge.
# TYPE c gauge
c 1
";
        assert_eq!(Format::Text.convert(open.to_owned()), expected);
        assert_eq!(Format::OpenMetrics.convert(open.to_owned()), open);
    }
}
