//! The machine: which CPU is the proxies', how many files may be open, how busy it is.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// Files that a process needs beside those of idle connections: listeners, logs, other connections.
const SPARE_FILES: u64 = 400;

/// What was found and prepared.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where proxies run; `None` if there is only one CPU.
    proxy_cpu: Option<usize>,
    load_cpus: usize,
    /// How many idle connections the limit on open files allows.
    pub idle_limit: usize,
    pub facts: Facts,
}

/// What a reader of figures must know of the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    pub cpu: String,
    pub cpus: usize,
    pub kernel: String,
    pub load_before: String,
}

impl Machine {
    /// Keeps this process off the proxies' CPU, and lets it open enough files for `idle`
    /// connections, each of which ends here twice.
    pub fn prepare(idle: usize) -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .collect();
        let proxy_cpu = cpus.last().copied().filter(|_| cpus.len() > 1);
        if let Some(cpu) = proxy_cpu {
            let mut rest = allowed;
            rest.unset(cpu);
            sched_setaffinity(None, &rest)?;
        }
        let idle_limit = raise_files(idle);
        let facts = Facts {
            cpu: cpu_name(&fs::read_to_string("/proc/cpuinfo")?),
            cpus: cpus.len(),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            load_before: load(),
        };
        let load_cpus = cpus.len().saturating_sub(usize::from(proxy_cpu.is_some()));
        Ok(Self {
            proxy_cpu,
            load_cpus,
            idle_limit,
            facts,
        })
    }

    /// How many CPUs the load and the members share.
    pub fn load_cpus(&self) -> usize {
        self.load_cpus
    }

    /// Does something that starts a process, such that the process runs on the proxies' CPU: a
    /// child inherits where its parent's thread may run.
    pub fn on_proxy_cpu<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let Some(cpu) = self.proxy_cpu else {
            return work();
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut only = CpuSet::new();
                only.set(cpu);
                sched_setaffinity(None, &only)?;
                work()
            });
            thread
                .join()
                .unwrap_or_else(|_| anyhow::bail!("the starting thread panicked"))
        })
    }
}

/// How many files a process may have to open: an idle connection ends twice in this process, in a
/// client and in a member, and twice in a proxy.
pub fn files(idle: usize) -> u64 {
    // A proxy that keeps a reserve for itself and for other clients gives one client a part of all.
    idle as u64 * 5 / 2 + SPARE_FILES
}

/// Raises the limit on open files as far as is wanted and allowed; answers how many idle
/// connections it is good for.
fn raise_files(idle: usize) -> usize {
    let wanted = files(idle);
    let now = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    if !enough(now.current) {
        // First also the hard limit, which only root may raise; then as far as that one allows.
        let both = Rlimit {
            current: Some(wanted),
            maximum: now.maximum.map(|max| max.max(wanted)),
        };
        let soft = Rlimit {
            current: now.maximum,
            maximum: now.maximum,
        };
        if setrlimit(Resource::Nofile, both).is_err() {
            // What can't be raised shows in what is read back below.
            let _ = setrlimit(Resource::Nofile, soft);
        }
    }
    let files = getrlimit(Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
        .min(wanted);
    usize::try_from(files.saturating_sub(SPARE_FILES) * 2 / 5).unwrap_or(idle)
}

/// The load averages, as the kernel prints them.
pub fn load() -> String {
    fs::read_to_string("/proc/loadavg").map_or_else(
        |_| "unknown".into(),
        |text| text.split(' ').take(3).collect::<Vec<_>>().join(" "),
    )
}

fn cpu_name(cpuinfo: &str) -> String {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "model name")
        .map_or_else(
            || std::env::consts::ARCH.to_owned(),
            |(_, name)| name.trim().to_owned(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_called_what_the_kernel_calls_it() {
        assert_eq!(
            cpu_name("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"),
            "Some CPU @ 2 GHz"
        );
        assert_eq!(cpu_name("processor\t: 0\n"), std::env::consts::ARCH);
    }
}
