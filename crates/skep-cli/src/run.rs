//! `skep run`: a program over a capture, or on given bytes.

use crate::capture::{Frame, Reader, Writer};
use crate::failure::Failure;
use crate::load::{LoadArgs, Wanted};
use crate::measure::{Batches, Timing};
use crate::object::{self, is_stdin, runnable_type};
use crate::output;
use crate::report::{self, Loaded};
use crate::samples::Samples;
use indicatif::{ProgressBar, ProgressStyle};
use skep::abi::{Context, ProgramType};
use skep::world::World;
use skep::{Engine, Module, Object, Packet, Program, Runtime};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Captures of this many bytes get a progress bar.
const LONG: u64 = 8 << 20;
/// Maximum number of frames, and of their bytes, that are measured after the run.
const SAMPLE_FRAMES: usize = 10_000;
const SAMPLE_BYTES: usize = 16 << 20;
/// How long each engine is measured.
const BUDGET: Duration = Duration::from_millis(150);
/// Runs that are timed together.
const BATCH: usize = 64;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// BPF object file.
    #[arg(value_name = "OBJ")]
    object: PathBuf,
    /// The program's type, instead of the one that its section selects.
    #[arg(long = "type", value_name = "TYPE", value_parser = runnable_type)]
    program_type: Option<&'static ProgramType>,
    /// Run over the packets of this capture (pcap or pcapng; Ethernet, raw IP or Linux cooked, which become Ethernet
    /// frames); `-` is standard input.
    #[arg(long, value_name = "IN", conflicts_with = "data_in")]
    pcap: Option<PathBuf>,
    /// Write the packets to this capture as the program left them, without the dropped ones.
    #[arg(long, value_name = "OUT", requires = "pcap", conflicts_with = "data_in")]
    write: Option<PathBuf>,
    /// Run on the bytes of this file: a packet, or the buffer of a program of type raw; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    data_in: Option<PathBuf>,
    /// Write the bytes to this file as the first run left them.
    #[arg(long, value_name = "FILE", requires = "data_in")]
    data_out: Option<PathBuf>,
    #[command(flatten)]
    load: LoadArgs,
    /// Number of passes over the input; every pass counts.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    #[command(flatten)]
    world: crate::world::WorldArgs,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    if args.pcap.is_none() && args.data_in.is_none() {
        return Err(nothing_to_run_on());
    }
    let world = args.world.read()?;
    if args.load.interp && args.pcap.is_some() && world.is_some() {
        let text = "--interp runs the program alone: leave it out, or --world";
        return Err(Failure::Usage(text.into()));
    }
    let inputs = [Some(&args.object), args.pcap.as_ref(), args.data_in.as_ref()];
    if inputs.into_iter().flatten().filter(|path| is_stdin(path)).count() > 1 {
        return Err(Failure::Usage("standard input can be the object or the data, not both".into()));
    }
    let (object, name) = args.load.open(&args.object)?;
    match (&args.pcap, &args.data_in) {
        (Some(path), _) => over_capture(args, world.as_ref(), path, &object, &name),
        (None, Some(path)) => on_data(args, world.as_ref(), path, &object, &name),
        (None, None) => Err(nothing_to_run_on()),
    }
}

fn nothing_to_run_on() -> Failure {
    let text = "no input: give a capture with --pcap, or the bytes of a packet or buffer with --data-in";
    Failure::Usage(text.into())
}

fn load(
    args: &Args,
    world: Option<&World>,
    object: &Object,
    name: &str,
    buffer_len: u32,
    quiet: bool,
) -> Result<(Runtime, Module), Failure> {
    let wanted = Wanted { object, name, program_type: args.program_type, buffer_len };
    let (runtime, module) = args.load.load(&wanted, |mut builder| {
        if quiet {
            builder = builder.log(|_, _| {});
        }
        match world {
            Some(world) => builder.world(world),
            None => builder,
        }
    })?;
    if quiet {
        runtime.enable_stats(false);
    }
    Ok((runtime, module))
}

/// The counts of a run over a capture.
#[derive(Default)]
struct Counts {
    packets: u64,
    verdicts: BTreeMap<u64, u64>,
    interrupted: bool,
}

fn over_capture(
    args: &Args,
    world: Option<&World>,
    path: &Path,
    object: &Object,
    name: &str,
) -> Result<(), Failure> {
    if is_stdin(path) && args.repeat > 1 {
        let text = "--repeat reads the capture several times, so it needs a file instead of standard input";
        return Err(Failure::Usage(text.into()));
    }
    // Open the capture first: a typing mistake in its name should not cost a load.
    let mut reader = Reader::open(path)?;
    let (runtime, module) = load(args, world, object, name, 0, false)?;
    let program = &module.programs()[0];
    if let Context::Buffer = program.program_type().context {
        let text = "programs of type raw run on a buffer, not on packets: use --data-in instead of --pcap";
        return Err(Failure::Usage(text.into()));
    }
    if let Some(out) = args.write.as_deref().filter(|out| same_file(path, out)) {
        let text = format!("{} is the input: write to another file", out.display());
        return Err(Failure::Usage(text));
    }
    let mut writer = args.write.as_deref().map(Writer::create).transpose()?;
    let stop = stop_on_interrupt();
    let bar = progress(reader.size().saturating_mul(args.repeat));
    let mut samples = Samples::open(&module)?;
    let mut way = world.map(|world| args.world.way(world, program)).transpose()?.flatten();
    let mut counts = Counts::default();
    let mut sample = Sample::default();
    let mut broken = None;
    'passes: for pass in 0..args.repeat {
        if pass > 0 {
            reader = Reader::open(path)?;
        }
        let mut packet = Packet::new(&[]);
        loop {
            if stop.load(Ordering::Relaxed) {
                counts.interrupted = true;
                break 'passes;
            }
            let frame = match reader.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                // Report the packets that were run, then the error.
                Err(error) => {
                    broken = Some(Failure::from(error));
                    break 'passes;
                }
            };
            prepare(&mut packet, &frame);
            let (verdict, keep) = match &mut way {
                Some(way) => way.send(&mut packet)?,
                None => {
                    let verdict = program.run_with(args.load.engine(), &mut packet)? & 0xffff_ffff;
                    (Some(verdict), keeps(program, verdict))
                }
            };
            samples.take();
            counts.packets += 1;
            if let Some(verdict) = verdict {
                *counts.verdicts.entry(verdict).or_default() += 1;
            }
            if let (Some(writer), true) = (&mut writer, keep) {
                writer.write(frame.time, packet.bytes())?;
            }
            if pass == 0 {
                sample.offer(frame);
            }
            if counts.packets % 1024 == 0 {
                bar.set_position(pass * reader.size() + reader.position());
            }
        }
    }
    bar.finish_and_clear();
    if let Some(writer) = writer {
        writer.finish()?;
    }
    if counts.packets == 0 && broken.is_none() && !counts.interrupted {
        let text = format!("the capture {} holds no packets", path.display());
        return Err(Failure::Refused(text));
    }
    let (jit, interpreter) = if counts.interrupted || sample.frames.is_empty() {
        (None, None)
    } else {
        compare(args, world, object, name, &sample.frames, &stop)?
    };
    let capture = report::Capture {
        loaded: Loaded::new(object, &runtime, program, args.load.engine()),
        packets: counts.packets,
        verdicts: verdicts(program, &counts.verdicts),
        ends: way.map(|way| way.ends()).unwrap_or_default(),
        interrupted: counts.interrupted,
        ns_per_packet: if args.load.interp { interpreter } else { jit }.map(|timing| timing.median),
        ns_per_packet_jit: jit.map(|timing| timing.median),
        ns_per_packet_interp: interpreter.map(|timing| timing.median),
        maps: report::maps(&module, &samples, args.json)?,
    };
    report::print(&capture, args.json)?;
    broken.map_or(Ok(()), Err)
}

/// Whether both paths lead to the same file.
fn same_file(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((place(a), place(b)), (Ok(a), Ok(b)) if a == b)
}

fn prepare(packet: &mut Packet, frame: &Frame) {
    packet.set(&frame.bytes);
    packet.info = skep::PacketInfo {
        ingress_ifindex: frame.interface + 1,
        tstamp: frame.time,
        ..skep::PacketInfo::default()
    };
}

/// Whether a packet with this verdict is passed on.
fn keeps(program: &Program, verdict: u64) -> bool {
    match program.program_type().verdict(verdict) {
        Some("aborted" | "drop" | "shot" | "stolen") => false,
        _ => program.program_type().name != "socket_filter" || verdict != 0,
    }
}

/// Verdicts by name, the most frequent first.
pub(crate) fn verdicts(program: &Program, counts: &BTreeMap<u64, u64>) -> Vec<(String, u64)> {
    let name = |verdict: u64| match program.program_type().verdict(verdict) {
        Some(name) => name.to_owned(),
        None => (verdict as u32).to_string(),
    };
    let mut named: Vec<_> = counts.iter().map(|(verdict, count)| (name(*verdict), *count)).collect();
    named.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    named
}

/// The first frames of a capture, kept for measuring.
#[derive(Default)]
struct Sample {
    frames: Vec<Frame>,
    bytes: usize,
}

impl Sample {
    fn offer(&mut self, frame: Frame) {
        if self.frames.len() < SAMPLE_FRAMES && self.bytes < SAMPLE_BYTES {
            self.bytes += frame.bytes.len();
            self.frames.push(frame);
        }
    }
}

/// Measures both engines over the sample, alternately, with a separate load, so that the reported maps keep what
/// the capture left in them.
fn compare(
    args: &Args,
    world: Option<&World>,
    object: &Object,
    name: &str,
    frames: &[Frame],
    stop: &AtomicBool,
) -> Result<(Option<Timing>, Option<Timing>), Failure> {
    let (_runtime, module) = load(args, world, object, name, 0, true)?;
    let program = &module.programs()[0];
    let mut samples = Samples::open(&module)?;
    let mut packets = vec![Packet::new(&[]); BATCH.min(frames.len())];
    let (mut jit, mut interpreter) = (Batches::default(), Batches::default());
    let started = Instant::now();
    for batch in frames.chunks(BATCH).cycle() {
        for (engine, batches) in [(Engine::Jit, &mut jit), (Engine::Interpreter, &mut interpreter)] {
            for (packet, frame) in packets.iter_mut().zip(batch) {
                prepare(packet, frame);
            }
            batches.time(batch.len(), || {
                packets[..batch.len()]
                    .iter_mut()
                    .try_for_each(|packet| program.run_with(engine, packet).map(drop))
            })?;
            samples.take();
        }
        if started.elapsed() > 2 * BUDGET || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok((jit.timing(), interpreter.timing()))
}

fn on_data(
    args: &Args,
    world: Option<&World>,
    path: &Path,
    object: &Object,
    name: &str,
) -> Result<(), Failure> {
    let data = object::bytes(path)?;
    let len = u32::try_from(data.len())
        .map_err(|_| Failure::Refused(format!("{} has more than 4 GiB", path.display())))?;
    let (runtime, module) = load(args, world, object, name, len, false)?;
    let program = &module.programs()[0];
    let mut samples = Samples::open(&module)?;
    let mut input = Input::new(program, data);
    let result = input.run(program, args.load.engine())?;
    samples.take();
    if let Some(out) = &args.data_out {
        output::file(out, input.bytes())?;
    }
    let stop = stop_on_interrupt();
    let mut batches = Batches::default();
    let mut left = args.repeat;
    while left > 0 && !stop.load(Ordering::Relaxed) {
        let runs = left.min(BATCH as u64);
        input.restore();
        batches.time(runs as usize, || {
            (0..runs).try_for_each(|_| input.run(program, args.load.engine()).map(drop))
        })?;
        samples.take();
        left -= runs;
    }
    let timing = batches.timing();
    let data = report::Data {
        loaded: Loaded::new(object, &runtime, program, args.load.engine()),
        result,
        verdict: program.program_type().verdict(result),
        runs: args.repeat - left,
        ns_best: timing.map(|timing| timing.best),
        ns_median: timing.map(|timing| timing.median),
        maps: report::maps(&module, &samples, args.json)?,
    };
    report::print(&data, args.json)?;
    Ok(())
}

/// Input of a program: the bytes of a file, restored before each batch.
enum Input {
    Buffer { original: Vec<u8>, buffer: Vec<u8> },
    Packet { original: Vec<u8>, packet: Box<Packet> },
}

impl Input {
    fn new(program: &Program, original: Vec<u8>) -> Self {
        match program.program_type().context {
            Context::Buffer => Self::Buffer { buffer: original.clone(), original },
            _ => Self::Packet { packet: Box::new(Packet::new(&original)), original },
        }
    }

    fn run(&mut self, program: &Program, engine: Engine) -> Result<u64, skep::Error> {
        match self {
            Self::Buffer { buffer, .. } => program.run_raw_with(engine, buffer),
            Self::Packet { packet, .. } => Ok(program.run_with(engine, packet)? & 0xffff_ffff),
        }
    }

    fn restore(&mut self) {
        match self {
            Self::Buffer { original, buffer } => buffer.copy_from_slice(original),
            Self::Packet { original, packet } => packet.set(original),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Buffer { buffer, .. } => buffer,
            Self::Packet { packet, .. } => packet.bytes(),
        }
    }
}

fn progress(total: u64) -> ProgressBar {
    if total < LONG {
        return ProgressBar::hidden();
    }
    // Drawn on standard error, and only on a terminal.
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {eta}");
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A flag that Ctrl-C sets, so that the counts so far are still printed. A second Ctrl-C ends the process.
pub(crate) fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Relaxed: the flag carries no data. If no handler can be installed, Ctrl-C ends the process at once.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    stop
}
