//! Stages: named steps of a command, run one after the other, each with its time, its deadline and,
//! when it fails, the command line to repeat it by.
//!
//! Programs run in a process group of their own, so that a deadline or Ctrl-C ends all that they
//! started, and nothing else.

use std::future::Future;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, stdout};
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::failures::Failures;

/// How long a group may take to end once it was asked to.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Ended by a signal from outside.
#[derive(Debug)]
pub struct Interrupted(i32);

impl Interrupted {
    /// By the signal of this number.
    pub fn new(signal: i32) -> Self {
        Self(signal)
    }

    /// The exit code that shells expect.
    pub fn code(&self) -> u8 {
        u8::try_from(128 + self.0).unwrap_or(1)
    }
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "interrupted by signal {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Runs one command of ours to its end.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(work);
    // A write to a reader that stalls is not waited for.
    runtime.shutdown_background();
    outcome
}

/// The steps of one command, and what they took.
pub struct Stages {
    total: usize,
    done: Vec<(String, Duration)>,
    started: Instant,
}

impl Stages {
    /// Begins a command with this many stages.
    pub fn new(total: usize) -> Self {
        Self {
            total,
            done: Vec::new(),
            started: Instant::now(),
        }
    }

    /// A stage that runs a program to its end; its output goes where ours goes.
    pub async fn run(
        &mut self,
        name: &str,
        deadline: Duration,
        command: &mut Command,
    ) -> anyhow::Result<()> {
        let line = command_line(command);
        self.open(name, &line);
        let begun = Instant::now();
        run_group(command, deadline)
            .await
            .with_context(|| failed(name, begun, &line))?;
        self.close(name, begun);
        Ok(())
    }

    /// A stage that runs two programs with tests at the same time, each to its end. What libtest
    /// says of those that fail is passed on, and printed once more at the end, where a log of
    /// thousands of lines that is cut still shows it.
    pub async fn run_tests(
        &mut self,
        name: &str,
        deadline: Duration,
        [one, other]: [&mut Command; 2],
    ) -> anyhow::Result<()> {
        let lines = [command_line(one), command_line(other)];
        self.open(name, &lines.join(" & "));
        let begun = Instant::now();
        let [mut of_one, mut of_other] = <[Failures; 2]>::default();
        let results: [_; 2] = tokio::join!(
            run_group_with(one.stdout(Stdio::piped()), deadline, &mut of_one, stdout()),
            run_group_with(
                other.stdout(Stdio::piped()),
                deadline,
                &mut of_other,
                stdout()
            ),
        )
        .into();
        if results.iter().any(Result::is_err) {
            eprintln!("{}{}", of_one.text(), of_other.text());
        }
        for (result, line) in results.into_iter().zip(&lines) {
            result.with_context(|| failed(name, begun, line))?;
        }
        self.close(name, begun);
        Ok(())
    }

    /// A stage that we carry out ourselves. `line` is how to repeat it.
    pub async fn work<T>(
        &mut self,
        name: &str,
        line: &str,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        self.open(name, line);
        let begun = Instant::now();
        let result = work.await.with_context(|| failed(name, begun, line))?;
        self.close(name, begun);
        Ok(result)
    }

    /// Prints what each stage took.
    pub fn summary(&self) {
        eprintln!();
        for (name, took) in &self.done {
            eprintln!("  {name:<24} {:>12}", human(*took));
        }
        eprintln!(
            "all {} stages passed in {}",
            self.done.len(),
            human(self.started.elapsed())
        );
        debug_assert_eq!(
            self.done.len(),
            self.total,
            "the announced number of stages"
        );
    }

    fn open(&self, name: &str, line: &str) {
        eprintln!(
            "\n==> [{}/{}] {name}: {line}",
            self.done.len() + 1,
            self.total
        );
    }

    fn close(&mut self, name: &str, begun: Instant) {
        let took = begun.elapsed();
        eprintln!("<== {name}: passed in {}", human(took));
        self.done.push((name.to_owned(), took));
    }
}

fn failed(name: &str, begun: Instant, line: &str) -> String {
    format!(
        "{name} failed after {}\n  repeat it by: {line}\n  cause",
        human(begun.elapsed())
    )
}

/// A program's standard output; standard error goes where ours goes.
pub async fn output(command: &mut Command) -> anyhow::Result<String> {
    let line = command_line(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("{line} can't be started"))?;
    if !output.status.success() {
        bail!("{line} ended with {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{line} did not print UTF-8"))
}

/// The command as a person would type it.
pub fn command_line(command: &Command) -> String {
    let command = command.as_std();
    let variables = command.get_envs().filter_map(|(key, value)| {
        Some(format!(
            "{}={}",
            key.to_string_lossy(),
            quoted(&value?.to_string_lossy())
        ))
    });
    let words = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| quoted(&word.to_string_lossy()));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@+%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A time as people read it: `0.42 s`, `12.3 s`, `4 min 05 s`.
pub fn human(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.995 {
        format!("{seconds:.2} s")
    } else if seconds < 99.95 {
        format!("{seconds:.1} s")
    } else {
        let whole = time.as_secs();
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

/// Runs a program in a group of its own until it ends, the deadline passes or a signal comes.
pub async fn run_group(command: &mut Command, deadline: Duration) -> anyhow::Result<()> {
    run_group_with(command, deadline, &mut Failures::default(), stdout()).await
}

/// As [`run_group`]; lines of a standard output that is a pipe are passed on to `out`, and shown to
/// `failures`.
async fn run_group_with(
    command: &mut Command,
    deadline: Duration,
    failures: &mut Failures,
    out: impl AsyncWrite + Unpin,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let lines = child.stdout.take();
    let ended = async {
        let mut passed = std::pin::pin!(pass_on(lines, failures, out));
        tokio::select! {
            status = child.wait() => {
                // What a process that goes on inherited stays open: its lines are not waited for.
                let _ = tokio::time::timeout(TIMEOUT, passed).await;
                status
            }
            passed = &mut passed => match passed {
                Ok(()) => child.wait().await,
                Err(error) => Err(error),
            },
        }
    };
    let ended = tokio::select! {
        status = ended => status.map_err(anyhow::Error::from),
        () = tokio::time::sleep(deadline) => Err(anyhow!(
            "timed out after {}: ended with all its children",
            human(deadline)
        )),
        _ = interrupt.recv() => Err(Interrupted(2).into()),
        _ = terminate.recv() => Err(Interrupted(15).into()),
    };
    match ended {
        Ok(status) => validate(status),
        Err(error) => {
            end_group(&mut child, group).await?;
            Err(error)
        }
    }
}

/// Writes lines until there are no more. A reader that stalls keeps no deadline from passing.
async fn pass_on(
    lines: Option<ChildStdout>,
    failures: &mut Failures,
    mut out: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let Some(lines) = lines else { return Ok(()) };
    let mut lines = BufReader::new(lines).split(b'\n');
    while let Some(mut line) = lines.next_segment().await? {
        line.push(b'\n');
        out.write_all(&line).await?;
        failures.line(String::from_utf8_lossy(&line).trim_end_matches('\n'));
    }
    out.flush().await
}

fn validate(status: ExitStatus) -> anyhow::Result<()> {
    if status.success() {
        return Ok(());
    }
    bail!("it ended with {status}");
}

/// Asks a group to end, and makes it end.
async fn end_group(child: &mut Child, group: Option<Pid>) -> anyhow::Result<()> {
    let Some(group) = group else { return Ok(()) };
    // An error means that the group is gone already.
    let _ = kill_process_group(group, Signal::TERM);
    let asked = Instant::now();
    while test_kill_process_group(group).is_ok() && asked.elapsed() < TIMEOUT {
        // Reaped here, or our own zombie would keep the group alive.
        let _ = child.try_wait();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_is_printed_as_it_would_be_typed() {
        let mut command = Command::new("cargo");
        command
            .args(["test", "a b", "it's", ""])
            .env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            command_line(&command),
            r"RUSTDOCFLAGS='-D warnings' cargo test 'a b' 'it'\''s' ''"
        );
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(human(Duration::from_millis(420)), "0.42 s");
        assert_eq!(human(Duration::from_millis(12_340)), "12.3 s");
        assert_eq!(human(Duration::from_secs(245)), "4 min 05 s");
    }

    #[test]
    fn a_failing_program_fails_its_stage_and_names_the_command() {
        let error = block_on(async {
            let mut stages = Stages::new(1);
            stages
                .run("lint", Duration::from_mins(1), &mut shell("exit 3"))
                .await
        })
        .unwrap_err();
        let text = format!("{error:#}");
        assert!(text.starts_with("lint failed after "), "{text}");
        assert!(text.contains("repeat it by: sh -c 'exit 3'"), "{text}");
        assert!(text.ends_with("it ended with exit status: 3"), "{text}");
    }

    #[test]
    fn lines_of_tests_that_fail_are_kept_and_a_daemon_they_left_is_not_waited_for() {
        let begun = Instant::now();
        let mut failures = Failures::default();
        let printed =
            "echo '---- a stdout ----'; echo why; echo; echo failures:; sleep 30 & exit 1";
        let error = block_on(run_group_with(
            shell(printed).stdout(Stdio::piped()),
            Duration::from_mins(1),
            &mut failures,
            stdout(),
        ))
        .unwrap_err();
        assert_eq!(error.to_string(), "it ended with exit status: 1");
        assert_eq!(failures.text(), "\n---- a, which failed ----\nwhy\n\n");
        assert!(begun.elapsed() < Duration::from_secs(25), "it waited");
    }

    #[test]
    fn of_two_programs_with_tests_both_run_to_their_end_and_the_one_that_failed_is_named() {
        let folder = std::env::temp_dir().join(format!("landfall-two-{}", std::process::id()));
        let (mut quick, mark) = (shell("exit 5"), folder.display());
        let mut slow = shell(&format!("sleep 0.3; mkdir {mark}"));
        let error = block_on(async {
            let both = [&mut quick, &mut slow];
            let minute = Duration::from_mins(1);
            Stages::new(1).run_tests("test", minute, both).await
        })
        .unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("repeat it by: sh -c 'exit 5'"), "{text}");
        std::fs::remove_dir(&folder).expect("the other one ran to its end");
    }

    #[test]
    fn a_program_goes_on_after_the_end_of_its_output_or_without_one() {
        for piped in [Stdio::piped(), Stdio::null()] {
            let error = block_on(run_group_with(
                shell("exec >&-; sleep 0.3; exit 4").stdout(piped),
                Duration::from_mins(1),
                &mut Failures::default(),
                stdout(),
            ))
            .unwrap_err();
            assert_eq!(error.to_string(), "it ended with exit status: 4");
        }
    }

    #[test]
    fn a_reader_that_stalls_does_not_stop_the_deadline() {
        let error = block_on(async {
            let (out, _not_read) = tokio::io::duplex(1);
            let command = &mut shell("echo more than fits; sleep 600");
            let (piped, soon) = (command.stdout(Stdio::piped()), Duration::from_millis(100));
            run_group_with(piped, soon, &mut Failures::default(), out).await
        })
        .unwrap_err();
        assert!(error.to_string().starts_with("timed out"), "{error:#}");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let begun = Instant::now();
        let error = block_on(async {
            let mut stages = Stages::new(1);
            stages
                .run(
                    "hang",
                    Duration::from_millis(100),
                    &mut shell("sleep 600 & wait"),
                )
                .await
        })
        .unwrap_err();
        assert!(
            format!("{error:#}").contains("timed out after 0.10 s"),
            "{error:#}"
        );
        assert!(begun.elapsed() < TIMEOUT, "the group had to be killed");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = block_on(output(&mut Command::new("no-such-program-here"))).unwrap_err();
        assert_eq!(error.to_string(), "no-such-program-here can't be started");
    }

    #[test]
    fn an_interrupt_ends_with_the_code_that_shells_expect() {
        assert_eq!(Interrupted(2).code(), 130);
        assert_eq!(Interrupted(15).code(), 143);
    }
}
