//! The runtime: code memory, virtual CPUs, helpers, limits and the log, shared by everything loaded into it.

use crate::audit::{AuditFailure, AuditSink};
use crate::budget::Budget;
use crate::dispatch::Dispatch;
use crate::ending::Interrupts;
use crate::error::Error;
use crate::function;
use crate::helpers;
use crate::host;
use crate::machine_objects::MachineObjects;
use crate::observe::Observed;
use crate::registry::{self, Registry};
use crate::shared::{Helper, Log, Shared, after, before};
use crate::surroundings::Surroundings;
use skep_abi::{HelperFn, HelperProto, RetKind};
use skep_maps::{Policy, Reclamation};
use skep_rcu::{Domain, Grace};
use skep_text::{Arena, Backing};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

mod functions;

/// `bpf_get_smp_processor_id`.
const GET_SMP_PROCESSOR_ID: u32 = 8;

/// Loads objects and runs their programs. Cheap to clone; clones are the same runtime.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

/// Settings of a [`Runtime`].
pub struct RuntimeBuilder {
    cpus: u32,
    map_memory: u64,
    shares_maps: bool,
    max_walked: u64,
    coverage: bool,
    privileged: bool,
    untrusted: bool,
    #[cfg(feature = "guard")]
    guards: bool,
    granularity: Option<u64>,
    policy: Policy,
    code: skep_text::Config,
    jit: skep_jit::Options,
    helpers: BTreeMap<u32, Helper>,
    hosts: host::Registered,
    linux_numbers: bool,
    taken: Option<Error>,
    log: Box<Log>,
    surroundings: Arc<Surroundings>,
    audit: Option<(Box<dyn AuditSink>, AuditFailure)>,
    #[cfg(feature = "signatures")]
    signers: Option<Box<dyn crate::signature::Keys>>,
    budget: Option<Budget>,
}

impl Runtime {
    /// A runtime with the default settings.
    ///
    /// # Errors
    ///
    /// [`Error::Text`] if the system refuses executable memory.
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// A runtime with other settings.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// How much of the executable memory is used.
    pub fn occupancy(&self) -> skep_text::Occupancy {
        self.shared.arena.occupancy()
    }

    /// Declarations of this host's functions in C, for the authors of its programs: a header, each function under its
    /// name and number. Arguments have names by their places. Compiled, it gives their prototypes to tools
    /// ([`Prototypes::of_object`](crate::function::Prototypes::of_object)).
    ///
    /// ```
    /// let count = |bytes: &[u8], wanted: u8| -> u32 { bytes.iter().filter(|byte| **byte == wanted).count() as u32 };
    /// let runtime = skep::Runtime::builder().function(1000, "count", count).build()?;
    /// let header = runtime.header();
    /// assert!(header.contains("static unsigned int (*const count)(const void *a1, "), "{header}");
    /// assert!(header.contains(") = (void *) 1000;"));
    /// # Ok::<(), skep::Error>(())
    /// ```
    pub fn header(&self) -> String {
        let helpers = self.shared.helpers.values();
        // Programs declare methods by their names: `context_header` has those.
        let declared = helpers.filter(|helper| helper.of_host && helper.proto.only.is_none());
        function::header(declared.map(|helper| &helper.proto))
    }

    /// Executable memory itself: its map, promotion to huge pages, read sections.
    pub fn arena(&self) -> &Arena {
        &self.shared.arena
    }

    /// How many virtual CPUs there are: runs that can be in progress at once, and values in a per-CPU map.
    pub fn cpus(&self) -> u32 {
        self.shared.domain.limit()
    }

    /// The most bytes that one map may take ([`RuntimeBuilder::map_memory`]).
    pub fn map_memory(&self) -> u64 {
        self.shared.map_memory
    }

    /// Releases this thread's virtual CPU, if it [keeps](RuntimeBuilder::cpus) one. For threads that will be idle for
    /// long; the next run claims one again. Returns `false` and does nothing if the thread has none or is running a
    /// program.
    pub fn release_cpu(&self) -> bool {
        self.shared.domain.release()
    }

    /// Ends all runs in progress, as [`Program::interrupt`](crate::Program::interrupt) does those of one program.
    pub fn interrupt(&self) {
        self.shared.interrupts.interrupt();
    }

    /// Turns statistics of runs on or off, at any time and for everything in this runtime: [`Program::stats`],
    /// [`Link::stats`]. A run that has begun counts according to what was set then. Off by default; turning them off
    /// keeps what was counted.
    ///
    /// On, a run takes 100 to 200 ns more, mostly to read the clock twice; each program and each link takes 2.3 KiB of
    /// memory for each virtual CPU that runs it. Off, a run tests one flag.
    ///
    /// ```
    /// use skep::{Object, Runtime};
    ///
    /// let runtime = Runtime::new()?;
    /// let insns = skep::isa::assemble("r0 = 7\nexit").expect("the text is right");
    /// let module = runtime.load(&Object::from_insns("seven", &skep::abi::RAW, insns))?;
    /// let program = &module.programs()[0];
    /// program.run_raw(&mut [])?; // counts nothing
    ///
    /// runtime.enable_stats(true);
    /// program.run_raw(&mut [])?;
    /// let stats = program.stats();
    /// assert_eq!((stats.run_cnt, stats.times.count()), (1, 1));
    /// let median = stats.times.quantile(0.5).expect("there is a run");
    /// assert!((median.from..=median.to).contains(&stats.run_time_ns));
    /// # Ok::<(), skep::Error>(())
    /// ```
    ///
    /// [`Program::stats`]: crate::Program::stats
    /// [`Link::stats`]: crate::Link::stats
    pub fn enable_stats(&self, on: bool) {
        self.want_stats(registry::HOST, on);
    }

    /// Whether runs are counted, because the host or a client of bpf(2) wants it.
    pub fn stats_enabled(&self) -> bool {
        // Relaxed: see the field.
        self.shared.counts_runs.load(Ordering::Relaxed) != 0
    }

    /// How many records the sink of [`RuntimeBuilder::audit`] has not kept.
    pub fn audit_failures(&self) -> u64 {
        self.shared.observed.lost()
    }

    pub(crate) fn want_stats(&self, who: u8, on: bool) {
        self.shared.registry.want(&self.shared.counts_runs, who, on, self.cpus());
    }

    /// Waits until no thread runs a program that was replaced or removed before this call, in arrays
    /// ([`ProgramArray`](crate::ProgramArray)) and hooks ([`Link::replace`](crate::Link::replace)).
    ///
    /// # Errors
    ///
    /// [`Error::Slots`] if this thread is running a program, since it would wait for itself, and in a forked child;
    /// [`Error::Text`] if the system no longer makes CPUs synchronise.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.shared.dispatch.settle();
        self.shared.dispatch.objects.forget_unused(&self.shared.domain);
        // The keeper may still be working on texts that were retired.
        if !self.shared.jit.fixed_code {
            self.shared.arena.sync_cores()?;
        }
        Ok(self.shared.domain.synchronize(Grace::Both)?)
    }

    /// The number of objects that programs have allocated and that something owns: a running program, a map, or
    /// another object. Exact while no program runs.
    pub fn objects(&self) -> usize {
        self.shared.dispatch.objects.live()
    }

    /// Remembers where objects are, for checking mode.
    #[cfg(test)]
    pub(crate) fn trace_objects(&self) {
        self.shared.dispatch.objects.trace();
    }

    /// The memory for elements of maps that this runtime's programs use ([`Map::create_in`](crate::Map::create_in)):
    /// its RCU domain and its policy.
    pub fn memory(&self) -> Reclamation {
        Reclamation { policy: self.shared.policy, ..Reclamation::new(self.shared.domain.clone()) }
    }

    /// A handle of the runtime that has this.
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("cpus", &self.cpus()).finish_non_exhaustive()
    }
}

impl RuntimeBuilder {
    /// How many virtual CPUs there are: how many runs can be in progress at once, and how many values per-CPU maps
    /// hold. Default: 64, or twice the number of processors if that is more.
    ///
    /// Any number of threads can run programs. Three quarters of the virtual CPUs are for threads to keep: a thread's
    /// first run takes one, and the thread has it until it ends or calls [`Runtime::release_cpu`]. When these are
    /// taken, a thread takes one of the last quarter (at least one) for the time of a run, which costs a search
    /// in each run; if these are all in runs too, it waits for one. So the number may differ between two
    /// runs of one thread, and it never changes during a run. Compiled programs over packets of XDP and over buffers
    /// that call nothing but their own functions take none.
    ///
    /// A thread that is already in a run of another runtime does not wait, because two such threads could wait for each
    /// other; its run is [`Error::Slots`]. A function that waits for other threads' runs keeps its own virtual CPU
    /// meanwhile: give the runtime more than such functions can take.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// The most bytes that one map may take. Default: 4 GiB.
    #[must_use]
    pub fn map_memory(mut self, bytes: u64) -> Self {
        self.map_memory = bytes;
        self
    }

    /// Whether other processes can map the runtime's maps as they do with a kernel: arrays with `BPF_F_MMAPABLE`, and
    /// ring buffers of both directions ([`Map::file`](crate::Map::file)). Other arrays and hash tables are in files
    /// too ([`Map::shared_values`](crate::Map::shared_values), [`Map::shared_table`](crate::Map::shared_table)). Each
    /// of these maps takes descriptors, and ring buffers twice the memory. Default: no.
    #[must_use]
    pub fn share_maps(mut self, share: bool) -> Self {
        self.shares_maps = share;
        self
    }

    /// The most instructions that the verifier walks for one program, over all its paths; a program that needs more is
    /// refused. This bounds the time that a load takes. Default: 1,000,000, as in Linux.
    #[must_use]
    pub fn max_walked(mut self, instructions: u64) -> Self {
        self.max_walked = instructions;
        self
    }

    /// Counts what programs execute: instructions, source lines and the sides of conditional jumps
    /// ([`Program::coverage`](crate::Program::coverage)), in compiled code and in the interpreter, without any change
    /// of the object. Off by default, and then nothing of it is in the code.
    ///
    /// Counted code takes more time and memory, and the [passes](skep_jit::Passes) of the compiler are off.
    #[must_use]
    pub fn coverage(mut self, coverage: bool) -> Self {
        self.coverage = coverage;
        self
    }

    /// Lets addresses leave all programs as numbers, as Linux allows its root user (`CAP_PERFMON`): in results, in maps
    /// and packets, by comparisons, arithmetic and masks on pointers, and from what is left of a pointer in the stack.
    /// Default: only programs that trace the host may do that.
    ///
    /// Memory is as safe as without: a number never becomes an address again. But whoever reads a map or a result
    /// learns where the host's memory lies, and address space layout randomisation protects nothing any more. For
    /// authors who may know that, never for untrusted ones.
    #[must_use]
    pub fn privileged(mut self, privileged: bool) -> Self {
        self.privileged = privileged;
        self
    }

    /// When the memory of an element that was deleted from a hash table or a trie is reused. Default: after a grace
    /// period, so that an element which a program has found never becomes another one while the program runs.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The most bytes of executable memory. Default: the size of the address range.
    #[must_use]
    pub fn code_memory(mut self, bytes: usize) -> Self {
        self.code = self.code.limit(bytes);
        self
    }

    /// Settings of code memory: backing, huge pages, visibility for profilers and debuggers. The runtime itself sets
    /// RCU domain, place (near the helpers) and landing pads ([`RuntimeBuilder::compile`]). Overrides an earlier
    /// [`RuntimeBuilder::code_memory`].
    #[must_use]
    pub fn code(mut self, config: skep_text::Config) -> Self {
        self.code = config;
        self
    }

    /// Hardening of compiled code, which costs a little time. Default: none. With landing pads, code memory is mapped
    /// so that processors check for them if they can.
    ///
    /// ```
    /// let mut options = skep::jit::Options::default();
    /// options.landing_pads = true;
    /// options.signed_returns = true;
    /// let runtime = skep::Runtime::builder().compile(options).build()?;
    /// # Ok::<(), skep::Error>(())
    /// ```
    #[must_use]
    pub fn compile(mut self, options: skep_jit::Options) -> Self {
        self.jit = options;
        self
    }

    /// The most that a run may take unless the host says otherwise
    /// ([`Program::with_budget`](crate::Program::with_budget)). Default: none; then programs run
    /// to their end, and nothing is charged or checked.
    ///
    /// With a budget, [`Budget::UNLIMITED`] included, programs are compiled with checks at the heads of loops and at
    /// calls, so that runs can also be [interrupted](crate::Program::interrupt). The checks cost time; the book has
    /// figures.
    ///
    /// ```
    /// use skep::{Budget, Error, Object, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(Budget::units(1000)).build()?;
    /// let insns = skep::isa::assemble(
    ///     "r0 = 0
    ///     again: r0 += 1
    ///      if r0 != 500 goto again
    ///      exit",
    /// )
    /// .expect("the text is right");
    /// let object = Object::from_insns("counting", &skep::abi::RAW, insns);
    /// let module = runtime.linker(&object).buffer_len(0).load()?;
    /// let counting = &module.programs()[0];
    /// assert_eq!(counting.run_raw(&mut [])?, 500);
    /// let short = counting.with_budget(Budget::units(999))?;
    /// assert!(matches!(short.run_raw(&mut []), Err(Error::BudgetExhausted { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// For programs whose authors may attack the host and each other: all that follows, whatever else is set.
    ///
    /// - Compiled code hides the constants of programs, masks what is accessed on paths that the processor takes by
    ///   mistake, waits for stores before it reads the stack again, and has no predicted indirect jumps
    ///   ([`skep_jit::Options::untrusted`]).
    /// - No address leaves a program as a number, whatever its type and [`RuntimeBuilder::privileged`] allow.
    /// - Programs see times in units of 100 µs, unless [`RuntimeBuilder::clock_granularity`] says otherwise.
    /// - Code memory is never mapped writable ([`Backing::Hardened`]), unless [`RuntimeBuilder::code`] requires
    ///   another backing.
    /// - Runs close the host's guarded memory, where the processor has protection keys (feature `guard`).
    ///
    /// Each has its price, which the chapter on security tells, and can be had alone. The interpreter, which runs
    /// programs on machines without a compiler, does none of the first.
    ///
    /// ```
    /// let runtime = skep::Runtime::builder().untrusted().build()?;
    /// # Ok::<(), skep::Error>(())
    /// ```
    #[must_use]
    pub fn untrusted(mut self) -> Self {
        self.untrusted = true;
        self
    }

    /// Programs see times that are multiples of this (`bpf_ktime_get_ns` and its kin): what is left out of them cannot
    /// tell how long a load took. Times do not decrease. Default: times as they are; a granularity of 0 means that too.
    #[must_use]
    pub fn clock_granularity(mut self, granularity: Duration) -> Self {
        self.granularity = Some(u64::try_from(granularity.as_nanos()).unwrap_or(u64::MAX));
        self
    }

    /// Receives the messages of `bpf_printk`: the name of the program that the host runs (also after a tail call), and
    /// the message without its line end. Default: standard error, control characters escaped. Called on the thread that
    /// runs the program. If it panics, the program goes on to its end, or in a runtime with a
    /// [budget](RuntimeBuilder::budget) to its next check, and the run returns
    /// [`Error::HostPanicked`](crate::Error::HostPanicked).
    #[must_use]
    pub fn log(mut self, log: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.log = Box::new(log);
        self
    }

    /// Passes a record of each load, refused ones included, and of each attachment, replacement and detachment of a
    /// program to this sink. `failure` says what happens if the sink does not keep one.
    ///
    /// ```
    /// use skep::{AuditEvent, AuditFailure, AuditRecord, Object, Runtime};
    /// use std::sync::{Arc, Mutex};
    ///
    /// let records = Arc::new(Mutex::new(Vec::new()));
    /// let sink = {
    ///     let records = Arc::clone(&records);
    ///     move |record: &AuditRecord| Ok(records.lock().expect("no panic").push(record.clone()))
    /// };
    /// let runtime = Runtime::builder().audit(sink, AuditFailure::Refuse).build()?;
    /// let insns = skep::isa::assemble("exit").expect("the text is right"); // without a result
    /// assert!(runtime.load(&Object::from_insns("wrong", &skep::abi::RAW, insns)).is_err());
    ///
    /// let record = records.lock().expect("no panic").pop().expect("of the load");
    /// let AuditEvent::Load { programs, .. } = record.event else { panic!("{record:?}") };
    /// assert_eq!(programs[0].name, "wrong");
    /// assert!(record.refusal.expect("it was refused").contains("wrong"));
    /// # Ok::<(), skep::Error>(())
    /// ```
    #[must_use]
    pub fn audit(mut self, sink: impl AuditSink + 'static, failure: AuditFailure) -> Self {
        self.audit = Some((Box::new(sink), failure));
        self
    }

    /// Adds a host's helper by its address and a prototype that the host vouches for. Programs of every type can call
    /// it. [`RuntimeBuilder::function`] does the same for a Rust function, safely.
    ///
    /// # Safety
    ///
    /// `call` must be sound for all arguments that satisfy `proto`, from any thread, and return what `proto`
    /// says; it must not unwind.
    #[must_use]
    pub unsafe fn helper(mut self, proto: HelperProto, call: HelperFn) -> Self {
        self.add(Helper { of_host: true, ..Helper::provided(&proto, call) });
        self
    }

    /// See [`RuntimeBuilder::world`].
    pub(crate) fn set_surroundings(&mut self, surroundings: &Arc<Surroundings>) {
        self.surroundings = Arc::clone(surroundings);
    }

    /// Loads only objects that somebody signed whom these keys trust: see [`signature`](crate::signature). Each load
    /// checks the signature first, of the bytes that it loads.
    #[cfg(feature = "signatures")]
    #[must_use]
    pub fn require_signatures(mut self, keys: impl crate::signature::Keys + 'static) -> Self {
        self.signers = Some(Box::new(keys));
        self
    }

    /// Makes sure that programs run with the host's [guarded memory](crate::guard) closed, also where a host starts a
    /// run within [`Guarded::open`](crate::guard::Guarded::open). Code that could open it is not loaded. A run reads
    /// a register more, and writes it twice if it was open.
    ///
    /// Guarded memory is closed outside of such closures with any runtime, so this is for hosts that may run programs
    /// within one. [`RuntimeBuilder::untrusted`] includes it where the processor has protection keys.
    #[cfg(feature = "guard")]
    #[must_use]
    pub fn guard_host_memory(mut self) -> Self {
        self.guards = true;
        self
    }

    /// Whether runs close guarded memory.
    #[cfg(feature = "guard")]
    fn guards(&self) -> Result<bool, Error> {
        match (self.guards, self.untrusted) {
            (true, _) => Ok(skep_guard::check().map(|()| true)?),
            (false, true) => Ok(skep_guard::check().is_ok()),
            (false, false) => Ok(false),
        }
    }

    /// Makes the runtime.
    ///
    /// # Errors
    ///
    /// If the system refuses executable memory, memory is to be guarded and cannot, `cpus` is 0 or too large, or a
    /// host's helper has the number of an existing one.
    pub fn build(self) -> Result<Runtime, Error> {
        if let Some(taken) = self.taken {
            return Err(taken);
        }
        #[cfg(feature = "guard")]
        let guards = self.guards()?;
        let mut helpers = self.helpers;
        // Programs are verified for this runtime's virtual CPUs, and loaded into no other.
        if let Some(known) = helpers.get_mut(&GET_SMP_PROCESSOR_ID).filter(|_| self.linux_numbers) {
            known.proto.ret = RetKind::Range { min: 0, max: i64::from(self.cpus) - 1 };
        }
        // Calls of helpers are short if the code is near them.
        let near = helpers::PROVIDED[0].1 as usize;
        let domain = Domain::builder().slots(self.cpus).shared(shared_cpus(self.cpus)).build()?;
        // If CPUs cannot be made to synchronise, code is never changed.
        let mut jit = if self.untrusted { self.jit.untrusted() } else { self.jit };
        // Pads without a check are useless, and a check without pads would stop every program.
        let code = self.code.landing_pads(self.jit.landing_pads);
        let code = if self.untrusted { code.backing_or(Backing::Hardened) } else { code };
        let arena = Arena::new(code.near(near).domain(domain.clone()))?;
        jit.fixed_code |= arena.pokes().is_err();
        let dispatch = Dispatch::new(arena.clone(), domain.clone(), jit.fixed_code, (before, after));
        Ok(Runtime {
            shared: Arc::new(Shared {
                arena,
                jit,
                domain,
                map_memory: self.map_memory,
                shares_maps: self.shares_maps,
                max_walked: self.max_walked,
                coverage: self.coverage,
                privileged: self.privileged,
                confined: self.untrusted,
                policy: self.policy,
                helpers,
                calls: Default::default(),
                hosts: self.hosts,
                linux_numbers: self.linux_numbers,
                dispatch,
                loads: OnceLock::new(),
                log: self.log,
                machine_objects: Arc::new(MachineObjects::new(&self.surroundings)),
                surroundings: self.surroundings,
                granularity: self.granularity.unwrap_or(if self.untrusted { COARSE } else { 0 }),
                timers: Arc::default(),
                target_programs: Mutex::default(),
                counts_runs: AtomicU8::new(0),
                registry: Registry::default(),
                observed: Observed::new(self.audit),
                #[cfg(feature = "guard")]
                guards,
                #[cfg(feature = "signatures")]
                signers: self.signers,
                budget: self.budget,
                interrupts: Interrupts::default(),
            }),
        })
    }
}

/// Nanoseconds. Browsers show this to pages that may share a process with others; a cache miss takes a thousandth.
const COARSE: u64 = 100_000;

/// How many of the virtual CPUs no thread keeps.
fn shared_cpus(cpus: u32) -> u32 {
    (cpus / 4).max(1)
}

impl Default for RuntimeBuilder {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        // Only implemented helpers: many have a prototype alone.
        let provided = helpers::PROVIDED.iter().filter_map(|(id, call)| {
            let proto = skep_abi::linux_helper(*id)?;
            Some((*id, Helper::provided(proto, *call)))
        });
        Self {
            cpus: (2 * processors).clamp(64, skep_rcu::MAX_SLOTS),
            map_memory: 4 << 30,
            shares_maps: false,
            max_walked: skep_verifier::Config::default().max_walked,
            coverage: false,
            privileged: false,
            untrusted: false,
            #[cfg(feature = "guard")]
            guards: false,
            granularity: None,
            policy: Policy::default(),
            code: skep_text::Config::new(),
            jit: skep_jit::Options::default(),
            helpers: provided.collect(),
            hosts: host::Registered::default(),
            linux_numbers: true,
            taken: None,
            log: Box::new(to_standard_error),
            surroundings: Arc::default(),
            audit: None,
            #[cfg(feature = "signatures")]
            signers: None,
            budget: None,
        }
    }
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("cpus", &self.cpus)
            .field("map_memory", &self.map_memory)
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

/// The default log. Write errors are ignored, and control characters escaped: a program must not end its host by
/// printing to a closed standard error, nor send commands to a terminal.
fn to_standard_error(program: &str, message: &str) {
    let line = format!("{}\n", escaped(&format!("{program}: {message}")));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// The text with control characters, except line ends and tabulators, in Rust's notation.
///
/// Names, source lines and messages come from object files and programs. Escaped, they can be printed: they cannot send
/// commands to a terminal.
///
/// ```
/// assert_eq!(skep::escaped("red \u{1b}[31m"), "red \\u{1b}[31m");
/// ```
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' && c != '\t' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(escaped("a\tb\n\u{1b}[2J\u{9b}1m\r\u{7f}"), "a\tb\n\\u{1b}[2J\\u{9b}1m\\r\\u{7f}");
    }
}
