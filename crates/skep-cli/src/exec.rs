//! `skep exec`: runs an application whose BPF is skep's.

use crate::failure::Failure;
use clap::Parser;
use skep::Runtime;
use skep::sys::SysEngine;
use skep::world::{Machine, World};
use skep_exec::{FrontChoice, Supervisor, possible_cpus};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

/// The arguments of `skep exec`.
#[derive(Parser)]
pub(crate) struct Args {
    /// Trace the application's system calls bpf(2) to standard error, as strace does.
    #[arg(long)]
    log: bool,
    /// Show the application this file as the types of its kernel, /sys/kernel/btf/vmlinux.
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// The devices, routes and sockets that programs see, from a TOML file. Default: the device lo alone. With it the
    /// application sees these devices too, where it asks by routing sockets or their names.
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
    /// How its calls of bpf(2) are answered. `notify`: the kernel notifies skep of each. `preload`: a library in the
    /// application answers look-ups, and updates in arrays, by itself. `auto`: `preload` where that is possible and
    /// --log does not ask for every call.
    #[arg(long, value_enum, default_value = "auto", value_name = "FRONT")]
    front: FrontArg,
    #[cfg(feature = "signatures")]
    #[command(flatten)]
    trust: crate::signature::TrustArgs,
    /// The application and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The values of `--front`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FrontArg {
    /// `preload` where it is possible, else `notify`
    Auto,
    /// the kernel notifies skep of each call
    Notify,
    /// a library in the application answers what it can
    Preload,
}

impl Args {
    fn front(&self) -> FrontChoice {
        match self.front {
            // The library's answers are in no trace.
            FrontArg::Auto if self.log => FrontChoice::Notify,
            FrontArg::Auto => FrontChoice::Auto,
            FrontArg::Notify => FrontChoice::Notify,
            FrontArg::Preload => FrontChoice::Preload,
        }
    }
}

/// Runs it. The exit status is the application's; a signal that ended it counts as 128 and its number.
pub(crate) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::Refused(error.to_string());
    let world = match &args.world {
        Some(path) => crate::world::read(path)?,
        None => World::new(loopback()?),
    };
    let cpus = possible_cpus().map_err(|error| refused(&error))?;
    let runtime = Runtime::builder().cpus(cpus).share_maps(true).privileged(true).world(&world);
    #[cfg(feature = "signatures")]
    let runtime = args.trust.require(runtime)?;
    let runtime = runtime.build();
    let mut engine = SysEngine::new(runtime.map_err(|error| refused(&error))?, Some(world));
    #[cfg(feature = "signatures")]
    {
        engine = args.trust.trust(engine)?;
    }
    // The network that the application begins in is that of the world's first devices.
    if let Ok(network) = std::fs::metadata("/proc/self/ns/net") {
        engine = engine.network(network.ino(), 0);
    }
    let mut supervisor_types = None;
    if let Some(path) = &args.btf {
        let named = |error: &dyn std::fmt::Display| Failure::Refused(format!("{}: {error}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| named(&error))?;
        let types = skep_btf::Btf::parse(bytes).map_err(|error| named(&error))?;
        engine = engine.host_types(Arc::new(types));
        supervisor_types = Some(path.canonicalize().map_err(|error| named(&error))?);
    }
    // Without a world of its own, the application keeps its network.
    let supervisor = Supervisor::new(engine).front(args.front()).network(args.world.is_some());
    let mut supervisor = supervisor.warn(|line| eprintln!("skep exec: {line}"));
    if let Some(path) = supervisor_types {
        supervisor = supervisor.types(path);
    }
    let machine_readable = args.log;
    supervisor = supervisor.refused(move |refused| {
        eprintln!("skep exec: refused: {refused}");
        if machine_readable {
            let (what, name, times) = (refused.what, &refused.name, refused.times);
            eprintln!("{}", serde_json::json!({ "refused": what, "name": name, "times": times }));
        }
    });
    if args.log {
        supervisor = supervisor.trace(|line| eprintln!("{line}"));
    }
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    let status = supervisor.run(&mut command).map_err(|error| refused(&error))?;
    Ok(ExitCode::from(code(status)))
}

fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// A machine with the device that each has.
fn loopback() -> Result<Machine, skep::Error> {
    let mut machine = Machine::new();
    machine.add_device(skep::world::Device::new("lo").index(1).mtu(65536))?;
    Ok(machine)
}
