//! What `skep run` and `skep attach` share: the options of a load, and the load.

use crate::contents::Contents;
use crate::failure::Failure;
use crate::host::HostArgs;
use crate::settings::Settings;
use crate::{object, target};
use skep::abi::ProgramType;
use skep::{Engine, Module, Object, Runtime, RuntimeBuilder};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct LoadArgs {
    /// The program to run; optional if the object has only one.
    #[arg(long, value_name = "NAME")]
    prog: Option<String>,
    /// The types of the host: raw BTF, or an ELF file with a .BTF section.
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Fill a map before the run from a JSON list of elements, or from the report of an earlier run.
    #[arg(long = "map", value_name = "MAP=FILE")]
    maps: Vec<String>,
    /// Interpret instead of running machine code.
    #[arg(long)]
    pub(crate) interp: bool,
    /// Report how often the program ran, how long, and how the times are distributed. Each run takes some 100 ns more.
    #[arg(long)]
    stats: bool,
    #[cfg(feature = "signatures")]
    #[command(flatten)]
    signature: crate::signature::SignatureArgs,
    #[command(flatten)]
    host: HostArgs,
    /// What a function of --host returns, instead of 0.
    #[arg(long, value_name = "NAME=VALUE", value_parser = crate::host::result, requires = "host")]
    host_returns: Vec<(String, i64)>,
    /// Maximum size of one map, in bytes.
    #[arg(long, value_name = "BYTES")]
    map_memory: Option<u64>,
}

/// What is loaded.
pub(crate) struct Wanted<'a> {
    pub(crate) object: &'a Object,
    /// The program.
    pub(crate) name: &'a str,
    /// Its type, instead of its section's.
    pub(crate) program_type: Option<&'static ProgramType>,
    /// The length of the buffer of a program of type raw.
    pub(crate) buffer_len: u32,
}

impl LoadArgs {
    /// The object in that file, with its signature and the host's types, and the name of the program that is meant.
    pub(crate) fn open(&self, path: &Path) -> Result<(Object, String), Failure> {
        let mut object = object::open(path)?;
        #[cfg(feature = "signatures")]
        {
            object = self.signature.sign(object)?;
        }
        let kconfig = self.settings.kconfig.as_deref();
        if self.btf.is_some() || kconfig.is_some() {
            target::set(&mut object, self.btf.as_slice(), kconfig, None)?;
        }
        let name = object::choose(&object, self.prog.as_deref())?;
        Ok((object, name))
    }

    /// What runs the program.
    pub(crate) fn engine(&self) -> Engine {
        if self.interp { Engine::Interpreter } else { Engine::Jit }
    }

    /// Loads a program into a runtime of its own, to whose settings `adapt` adds, and fills its maps.
    pub(crate) fn load(
        &self,
        wanted: &Wanted<'_>,
        adapt: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Result<(Runtime, Module), Failure> {
        let mut builder = adapt(self.host.declare(Runtime::builder(), &self.host_returns)?);
        if let Some(bytes) = self.map_memory {
            builder = builder.map_memory(bytes);
        }
        #[cfg(feature = "signatures")]
        {
            builder = self.signature.require(builder)?;
        }
        let runtime = builder.build()?;
        let Wanted { object, name, program_type, buffer_len } = *wanted;
        let contents = Contents::read(&self.maps, object)?;
        let linker = contents.prepare(object, runtime.linker(object).only(name).buffer_len(buffer_len));
        let mut linker = self.settings.apply(object, linker)?;
        if let Some(program_type) = program_type {
            linker = linker.program_type(program_type);
        }
        let module = linker.load()?;
        runtime.enable_stats(self.stats);
        contents.fill(&module)?;
        Ok((runtime, module))
    }
}
