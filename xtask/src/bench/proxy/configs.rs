//! How each proxy is configured to do the same work. docs/benchmarks.md says why each line is
//! there.

use std::fmt::Write as _;
use std::path::Path;

use super::machine;
use super::sizes::Sizes;
use super::work::{Addresses, Work};
use crate::debian;

/// How HAProxy passes bulk on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Through buffers of 16 KiB.
    AsItComes,
    /// Through buffers of this size.
    Buffers(u32),
    /// Through pipes of 64 KiB, as the kernel makes them.
    Splice,
    /// Through pipes of this size.
    SpliceThrough(u32),
}

/// HAProxy.
pub fn haproxy(
    addresses: Addresses,
    sizes: &Sizes,
    passing: Passing,
) -> Result<String, std::fmt::Error> {
    let mut out = String::from("global\n  nbthread 1\n");
    // Two files each, and it insists on the limit that it computes from this.
    writeln!(out, "  maxconn {}", sizes.idle + 100)?;
    match passing {
        Passing::AsItComes => {}
        Passing::Buffers(bytes) => writeln!(out, "  tune.bufsize {bytes}")?,
        // A pipe takes two more files, and by itself it wants one for every fourth connection.
        Passing::Splice => out.push_str("  maxpipes 32\n"),
        Passing::SpliceThrough(bytes) => {
            writeln!(out, "  maxpipes 32\n  tune.pipesize {bytes}")?;
        }
    }
    out.push_str("\ndefaults\n  balance roundrobin\n  timeout connect 30s\n  timeout client 10m\n");
    out.push_str("  timeout server 10m\n  timeout http-keep-alive 10m\n");
    if matches!(passing, Passing::Splice | Passing::SpliceThrough(_)) {
        out.push_str("  option splice-request\n  option splice-response\n");
    }
    for work in sizes.works() {
        write!(
            out,
            "\nlisten {}\n  bind {} backlog 4096\n",
            work.name(),
            addresses.listener(work)
        )?;
        if work == Work::Http {
            out.push_str(
                "  mode http\n  http-reuse always\n  option forwardfor\n  \
                 http-request set-header X-Forwarded-Proto http\n  \
                 http-request set-header X-Forwarded-Port %[dst_port]\n",
            );
        } else {
            out.push_str("  mode tcp\n");
        }
        for (index, member) in addresses.members(work).enumerate() {
            writeln!(out, "  server m{index} {member}")?;
        }
    }
    Ok(out)
}

/// nginx.
pub fn nginx(
    addresses: Addresses,
    sizes: &Sizes,
    buffer: Option<&str>,
    folder: &Path,
) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    if Path::new(debian::STREAM_MODULE).exists() {
        writeln!(out, "load_module {};", debian::STREAM_MODULE)?;
    }
    writeln!(out, "daemon off;\nworker_processes 1;")?;
    writeln!(
        out,
        "pid {}/nginx.pid;\nerror_log stderr error;",
        folder.display()
    )?;
    // A connection through nginx counts twice; it takes memory for all of them at start.
    let connections = machine::files(sizes.idle) - 100;
    writeln!(
        out,
        "events {{\n  worker_connections {connections};\n  multi_accept on;\n}}"
    )?;
    out.push_str("\nstream {\n  proxy_connect_timeout 30s;\n  proxy_timeout 10m;\n");
    if let Some(buffer) = buffer {
        writeln!(out, "  proxy_buffer_size {buffer};")?;
    }
    for work in sizes.works().filter(|work| *work != Work::Http) {
        upstream(&mut out, addresses, work, "")?;
        writeln!(
            out,
            "  server {{ listen {} backlog=4096; proxy_pass {}; }}",
            addresses.listener(work),
            work.name()
        )?;
    }
    out.push_str("}\n\nhttp {\n  access_log off;\n");
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(out, "  {kind}_temp_path {}/{kind};", folder.display())?;
    }
    out.push_str("  keepalive_timeout 10m;\n  keepalive_requests 1000000000;\n");
    upstream(
        &mut out,
        addresses,
        Work::Http,
        "    keepalive 256;\n    keepalive_requests 1000000000;\n    keepalive_timeout 10m;\n",
    )?;
    write!(
        out,
        "  server {{\n    \
        listen {} backlog=4096;\n    \
        location / {{\n      \
        proxy_pass http://{};\n      \
        proxy_http_version 1.1;\n      \
        proxy_connect_timeout 30s;\n      \
        proxy_read_timeout 10m;\n      \
        proxy_set_header Connection \"\";\n      \
        proxy_set_header Host $http_host;\n      \
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n      \
        proxy_set_header X-Forwarded-Proto http;\n      \
        proxy_set_header X-Forwarded-Port $server_port;\n    \
        }}\n  \
        }}\n\
        }}\n",
        addresses.listener(Work::Http),
        Work::Http.name()
    )?;
    Ok(out)
}

fn upstream(out: &mut String, addresses: Addresses, work: Work, more: &str) -> std::fmt::Result {
    writeln!(out, "  upstream {} {{", work.name())?;
    for member in addresses.members(work) {
        writeln!(out, "    server {member};")?;
    }
    writeln!(out, "{more}  }}")
}

/// Landfall: a manifest.
pub fn landfall(addresses: Addresses, sizes: &Sizes) -> Result<String, std::fmt::Error> {
    let mut out = String::from(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: bench\n  annotations:\n    \
         landfall.dev/mode.http: http\n    landfall.dev/timeout-client-data: 10m\n    \
         landfall.dev/timeout-member-connect: 30s\n    \
         landfall.dev/timeout-member-data: 10m\n",
    );
    for work in sizes.works() {
        let members: Vec<_> = addresses
            .members(work)
            .map(|member| member.to_string())
            .collect();
        writeln!(
            out,
            "    landfall.dev/endpoints.{}: {}",
            work.name(),
            members.join(", ")
        )?;
    }
    out.push_str("spec:\n  type: LoadBalancer\n  ports:\n");
    for work in sizes.works() {
        writeln!(
            out,
            "  - name: {}\n    port: {}",
            work.name(),
            addresses.listener(work).port()
        )?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::work::Addresses;
    use super::super::work::Work;
    use super::*;

    #[test]
    fn no_two_proxies_share_an_address() {
        let all = |n| {
            let addresses = Addresses(n);
            Work::ALL
                .into_iter()
                .flat_map(move |work| {
                    std::iter::once(addresses.listener(work)).chain(addresses.members(work))
                })
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(all(1).len(), 29);
        assert!(all(1).is_disjoint(&all(2)));
    }

    #[test]
    fn splice_and_buffers_are_only_in_the_variants() {
        let of = |passing| haproxy(Addresses(2), &Sizes::FULL, passing).unwrap();
        let plain = of(Passing::AsItComes);
        assert!(
            !plain.contains("splice") && !plain.contains("size"),
            "{plain}"
        );
        let buffers = of(Passing::Buffers(65_536));
        assert!(
            !buffers.contains("splice") && buffers.contains("tune.bufsize 65536\n"),
            "{buffers}"
        );
        let splice = of(Passing::Splice);
        assert!(
            splice.contains("option splice-response\n") && !splice.contains("size"),
            "{splice}"
        );
        let pipes = of(Passing::SpliceThrough(1 << 20));
        assert!(pipes.contains("option splice-response\n"), "{pipes}");
        assert!(pipes.contains("tune.pipesize 1048576\n"), "{pipes}");
    }

    #[test]
    fn the_manifest_names_every_port_and_member() {
        let manifest = landfall(Addresses(1), &Sizes::FULL).unwrap();
        assert!(manifest.contains(
            "landfall.dev/endpoints.small: 127.90.1.1:7001, 127.90.1.2:7001, 127.90.1.3:7001, \
             127.90.1.4:7001, 127.90.1.5:7001, 127.90.1.6:7001, 127.90.1.7:7001, 127.90.1.8:7001\n"
        ));
        assert!(
            manifest.ends_with("  - name: http\n    port: 7003\n"),
            "{manifest}"
        );
        let sizes = Sizes {
            link: true,
            ..Sizes::FULL
        };
        let manifest = landfall(Addresses(1), &sizes).unwrap();
        assert!(
            manifest.contains("landfall.dev/endpoints.link: 10.91.1.1:7004\n"),
            "{manifest}"
        );
    }
}
