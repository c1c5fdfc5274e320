//! What a process costs, read from `/proc`: CPU time and resident memory.

use std::fs;

use anyhow::Context as _;

/// CPU time in user and system mode that processes have used so far, in seconds: all their threads,
/// also those that have ended. The kernel counts it exactly and reports it in ticks of 10 ms.
pub fn cpu_seconds(pids: &[i32]) -> anyhow::Result<f64> {
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let mut ticks = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/stat");
        let text = fs::read_to_string(&path).with_context(|| format!("process {pid} is gone"))?;
        ticks += ticks_of(&text).with_context(|| format!("{path} can't be understood"))?;
    }
    Ok(ticks as f64 / per_second)
}

/// Resident memory of processes, in bytes. Pages that they share count for each of them.
pub fn resident(pids: &[i32]) -> anyhow::Result<f64> {
    let mut kib = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).with_context(|| format!("process {pid} is gone"))?;
        kib += resident_kib(&text).with_context(|| format!("{path} can't be understood"))?;
    }
    Ok(kib as f64 * 1024.0)
}

/// The processes that a process has started and that are still there.
pub fn children(pid: i32) -> Vec<i32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// utime + stime, fields 14 and 15. The second field is a name in parentheses, which may itself
/// hold spaces and parentheses.
fn ticks_of(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident_kib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_a_name_with_parentheses() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 9 1 1";
        assert_eq!(ticks_of(stat), Some(300));
        assert_eq!(ticks_of("42 (x) S 1"), None);
    }

    #[test]
    fn resident_memory_is_read() {
        assert_eq!(resident_kib("Name:\tx\nVmRSS:\t    1234 kB\n"), Some(1234));
        assert_eq!(resident_kib("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_has_a_cost() {
        let me = std::process::id().cast_signed();
        assert!(cpu_seconds(&[me]).unwrap() >= 0.0);
        assert!(resident(&[me]).unwrap() > 100_000.0);
        assert!(cpu_seconds(&[i32::MAX]).is_err());
    }
}
