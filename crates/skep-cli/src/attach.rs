//! `skep attach`: a program over the frames of network interfaces.
//!
//! With `--json`, each line of standard output is one document: `attached` when frames come in, `counts` once in a
//! second, and `totals` at the end. A reader that closes the pipe ends the run.

mod report;

use crate::failure::Failure;
use crate::load::{LoadArgs, Wanted};
use crate::object::program_type;
use crate::samples::Samples;
use crate::{output, world};
use indicatif::{ProgressBar, ProgressStyle};
use report::{Attached, Counted, Totals};
use skep::abi::ProgramType;
use skep::{Module, Object, Runtime};
use skep_attach::{Live, Port, Turn, Waker};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often counts are shown.
const SHOW: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// BPF object file; `-` is standard input.
    #[arg(value_name = "OBJ")]
    object: PathBuf,
    /// The interface whose frames are run; several times: several, and the program redirects between them.
    #[arg(long, value_name = "IF", required = true)]
    dev: Vec<String>,
    /// How frames are had: `afpacket` runs copies of what comes in; `afxdp` takes what comes in on a queue from the
    /// kernel; `tap` makes a TAP device, and what this machine sends to it is run.
    #[arg(long, value_enum, default_value_t = Mode::Afpacket)]
    mode: Mode,
    /// Connect the TAP device with this interface: what the program passes goes on to the other one, in both
    /// directions.
    #[arg(long, value_name = "IF")]
    uplink: Option<String>,
    /// The queue, with --mode afxdp: the number of one, from 0.
    #[arg(long, value_name = "N")]
    queue: Option<u32>,
    /// With --mode afxdp: what the program passes comes in at this TAP device, which is made, and what this machine
    /// sends to it goes out of the interface if the program passes it.
    #[arg(long, value_name = "IF")]
    tap: Option<String>,
    /// The program's type, instead of the one that its section selects: xdp, sched_cls, sched_act or socket_filter.
    #[arg(long = "type", value_name = "TYPE", value_parser = attachable)]
    program_type: Option<&'static ProgramType>,
    /// Receive frames for other machines as well.
    #[arg(long)]
    promisc: bool,
    /// End after so many frames.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    seconds: Option<u64>,
    #[command(flatten)]
    load: LoadArgs,
    /// Helpers find the machine that this TOML file describes: its routes, neighbours, sockets.
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
    /// Print JSON, a document on each line.
    #[arg(long)]
    json: bool,
}

/// Parses the name of a program type that runs on frames, for clap.
fn attachable(name: &str) -> Result<&'static ProgramType, String> {
    match program_type(name)? {
        found if skep_attach::TYPES.contains(&found.name) => Ok(found),
        found => Err(format!(
            "programs of type {} do not run on frames of an interface; those that do: {}",
            found.name,
            skep_attach::TYPES.join(", ")
        )),
    }
}

/// How frames are had.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Afpacket,
    Afxdp,
    Tap,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    check(args)?;
    let (object, name) = args.load.open(&args.object)?;
    let (runtime, module) = load(args, &object, &name)?;
    let program = &module.programs()[0];
    let engine = args.load.engine();
    let mut live = Live::new(program, ports(args)?)?.engine(engine);
    if args.uplink.is_some() || args.tap.is_some() {
        live = live.connect(0, 1);
    }
    let mut samples = Samples::open(&module)?;
    let stop = stop_on_signals(live.waker());
    let started = Instant::now();
    let broken = watch(args, &mut live, &mut samples, &stop, started)?;
    let totals = Totals {
        loaded: crate::report::Loaded::new(&object, &runtime, program, engine),
        counted: Counted::new(program, live.counts(), started.elapsed()),
        maps: crate::report::maps(&module, &samples, args.json)?,
    };
    totals.print(args.json)?;
    broken.map_or(Ok(()), |error| Err(error.into()))
}

fn check(args: &Args) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
    match args.mode {
        Mode::Tap if args.dev.len() > 1 => {
            usage("--mode tap takes one --dev, the TAP device; name the other interface with --uplink")
        }
        Mode::Afpacket | Mode::Afxdp if args.uplink.is_some() => usage("--uplink is for --mode tap"),
        Mode::Afpacket | Mode::Tap if args.tap.is_some() => usage("--tap is for --mode afxdp"),
        Mode::Afpacket | Mode::Tap if args.queue.is_some() => usage("--queue is for --mode afxdp"),
        Mode::Afxdp if args.tap.is_some() && args.dev.len() > 1 => {
            usage("--tap connects one interface: give one --dev")
        }
        Mode::Afxdp if args.promisc => usage("--promisc is for --mode afpacket: ip link set IF promisc on"),
        _ => Ok(()),
    }
}

fn load(args: &Args, object: &Object, name: &str) -> Result<(Runtime, Module), Failure> {
    let world = args.world.as_deref().map(world::read).transpose()?;
    let wanted = Wanted { object, name, program_type: args.program_type, buffer_len: 0 };
    args.load.load(&wanted, |builder| match &world {
        Some(world) => builder.world(world),
        None => builder,
    })
}

/// The interfaces, open: frames come in from here on.
fn ports(args: &Args) -> Result<Vec<Port>, Failure> {
    let mut ports = Vec::new();
    match args.mode {
        Mode::Afpacket => {
            for name in &args.dev {
                ports.push(Port::packets(name, args.promisc)?);
            }
        }
        Mode::Afxdp => {
            for name in &args.dev {
                ports.push(Port::queue(name, args.queue.unwrap_or(0))?);
            }
            if let Some(name) = &args.tap {
                ports.push(Port::tap(name)?);
            }
        }
        Mode::Tap => {
            for name in &args.dev {
                ports.push(Port::tap(name)?);
            }
            // Answers are for the address of the TAP device, not for that of the interface.
            if let Some(name) = &args.uplink {
                ports.push(Port::packets(name, true)?);
            }
        }
    }
    Ok(ports)
}

/// Runs until it is time to end. Returns the failure that ended it, if one did: the counts until then are still worth
/// a report.
fn watch(
    args: &Args,
    live: &mut Live,
    samples: &mut Samples,
    stop: &AtomicBool,
    started: Instant,
) -> Result<Option<skep_attach::Error>, Failure> {
    let bar = spinner();
    let shows = args.json || !bar.is_hidden();
    if !Attached::new(live).print(args.json)? {
        return Ok(None);
    }
    let end = args.seconds.map(|seconds| started + Duration::from_secs(seconds));
    let mut show = started + SHOW;
    // Relaxed: the flag carries no data, and the waker ends the wait.
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            break;
        }
        if shows && now >= show {
            show = now + SHOW;
            let counted = Counted::new(live.program(), live.counts(), started.elapsed());
            bar.set_message(counted.line());
            bar.tick();
            if args.json && !output::line(&counted.event())? {
                break;
            }
        }
        let next = [end, shows.then_some(show)].into_iter().flatten().min();
        let mut turn = Turn::default();
        if let Some(next) = next {
            turn = turn.wait(next.saturating_duration_since(now));
        }
        if let Some(count) = args.count {
            match count.saturating_sub(live.counts().frames) {
                0 => break,
                left => turn = turn.frames(left),
            }
        }
        if let Err(error) = live.turn(&turn) {
            bar.finish_and_clear();
            return Ok(Some(error));
        }
        samples.take();
    }
    bar.finish_and_clear();
    Ok(None)
}

/// Counts on standard error, if that is a terminal.
fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {wide_msg}");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// A flag that the first signal to end sets; a second one ends the process.
fn stop_on_signals(waker: Waker) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Relaxed: see `watch`. If no handler can be installed, a signal ends the process at once.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        waker.wake();
    });
    stop
}
