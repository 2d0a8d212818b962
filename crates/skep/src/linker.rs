//! Linking and loading an object: maps are created and filled, programs verified, compiled and installed.
//!
//! A load is all or nothing: maps and code of a load that fails are freed before the error is returned.

mod maps;

use crate::arrays::{MapArray, MapHash, ProgramArray};
use crate::audit::AuditedProgram;
use crate::error::Error;
use crate::helpers::{self, recorded};
use crate::machine_objects;
use crate::module::Module;
use crate::object::{Object, ProgramOptions, Variable};
use crate::observe;
use crate::program::Program;
use crate::provides;
use crate::runtime::Runtime;
use crate::shared::{Calls, Helper};
use crate::steps::steps;
use crate::tenant::Tenant;
use maps::MapsOfLoad;
use skep_abi::{CPU_MASK, EndsLink, Linkage, MapKind, ProgramType, TargetFunction};
use skep_elf::{EntryTarget, MapEntry};
use skep_isa::{CallTarget, Imm64, Insn};
use skep_maps::objects::{Contents, Mask, Shape};
use skep_maps::{Map, Reclamation};
use skep_verifier::{Abilities, Config, Verified};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// A load in preparation.
pub struct Linker<'a> {
    runtime: Runtime,
    object: &'a Object,
    only: Option<String>,
    and: Vec<String>,
    options: ProgramOptions,
    patchable: bool,
    targets: BTreeMap<String, Arc<TargetFunction>>,
    given: BTreeMap<String, Arc<Map>>,
    /// The maps of an older module, of which those are given that nothing else is said about.
    older: Vec<Arc<Map>>,
    fresh: BTreeSet<String>,
    max_entries: BTreeMap<String, u32>,
    variables: BTreeMap<String, Vec<u8>>,
    #[cfg(feature = "typed")]
    claims: BTreeMap<String, crate::typed::Shape>,
    log: Option<Box<Lines<'a>>>,
    rules: Rules,
    tenant: Option<Arc<Tenant>>,
}

impl fmt::Debug for Linker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linker")
            .field("object", &self.object)
            .field("only", &self.only)
            .finish_non_exhaustive()
    }
}

/// What decides beside the runtime what programs may do.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rules {
    pub(crate) strict_alignment: bool,
    pub(crate) abilities: Abilities,
}

/// What receives the lines of a log.
type Lines<'a> = dyn FnMut(&str) + 'a;

impl Runtime {
    /// Creates an object's maps, verifies and compiles all its programs.
    ///
    /// # Errors
    ///
    /// The first error of [`Linker::load`]; nothing stays loaded.
    pub fn load(&self, object: &Object) -> Result<Module, Error> {
        self.linker(object).load()
    }

    /// Loads with choices: one program alone, another type, shared maps, sizes, initial values.
    pub fn linker<'a>(&self, object: &'a Object) -> Linker<'a> {
        Linker::new(self.clone(), object)
    }
}

impl<'a> Linker<'a> {
    fn new(runtime: Runtime, object: &'a Object) -> Self {
        Self {
            runtime,
            object,
            only: None,
            and: Vec::new(),
            options: ProgramOptions::default(),
            patchable: false,
            targets: BTreeMap::new(),
            given: BTreeMap::new(),
            older: Vec::new(),
            fresh: BTreeSet::new(),
            max_entries: BTreeMap::new(),
            variables: BTreeMap::new(),
            #[cfg(feature = "typed")]
            claims: BTreeMap::new(),
            log: None,
            rules: Rules::default(),
            tenant: None,
        }
    }

    /// Loads one program instead of all, with those that it can tail-call through arrays that the object fills.
    #[must_use]
    pub fn only(mut self, program: &str) -> Self {
        self.only = Some(program.to_owned());
        self
    }

    /// Loads another program with the [`only`](Self::only) one: for example one that is put into an array of programs.
    /// Without `only` it has no effect, since all are loaded.
    #[must_use]
    pub fn and(mut self, program: &str) -> Self {
        self.and.push(program.to_owned());
        self
    }

    /// Sets the program type, instead of the one that the sections name.
    #[must_use]
    pub fn program_type(mut self, program_type: &'static ProgramType) -> Self {
        self.options.program_type = Some(program_type);
        self
    }

    /// For programs of type `raw`: the length in bytes of the buffer that they will be run with. Default: 0.
    #[must_use]
    pub fn buffer_len(mut self, bytes: u32) -> Self {
        self.options.buffer_len = bytes;
        self
    }

    /// Lets programs sleep, whatever their sections say, if their type may: see [`ProgramOptions::sleepable`].
    #[must_use]
    pub fn sleepable(mut self, sleepable: bool) -> Self {
        self.options.sleepable = sleepable;
        self
    }

    /// Lets functions of the programs be replaced and watched while they run
    /// ([`Program::attach`](crate::Program::attach)): each function gets a branch at its entry that does nothing at
    /// first. Needs an object with types, and a runtime that may change code
    /// ([`fixed_code`](skep_jit::Options::fixed_code)).
    #[must_use]
    pub fn patchable(mut self, patchable: bool) -> Self {
        self.patchable = patchable;
        self
    }

    /// Verifies a program for a function of a loaded one: to take its place (`SEC("freplace")`), or to run before it
    /// (`SEC("fentry")`) or after it (`SEC("fexit")`). The load does not attach it:
    /// [`Program::attach`](crate::Program::attach).
    #[must_use]
    pub fn target(mut self, program: &str, function: Arc<TargetFunction>) -> Self {
        self.targets.insert(program.to_owned(), function);
        self
    }

    /// Verifies programs by other rules than skep's own.
    #[cfg(feature = "sys")]
    pub(crate) fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Uses an existing map instead of the object's map with this name, so that several objects share it. It must have
    /// the same kind, sizes, flags, special fields and inner map, and an array at least as many elements; programs are
    /// verified for its real number of elements. A per-CPU map must have a value for each of this runtime's virtual
    /// CPUs. Runtimes number their CPUs independently, so programs of two runtimes may update one value at the same
    /// time. This load cannot change the map's capacity or set variables in it.
    #[must_use]
    pub fn map(mut self, name: &str, map: Arc<Map>) -> Self {
        self.given.insert(name.to_owned(), map);
        self
    }

    /// Takes over the maps of a module, for an upgrade: each map of the object with the name of one of the module's is
    /// that map, under the rules of [`map`](Self::map). A load that finds two maps of one name and of different shape
    /// fails, and says in what they differ. Programs of both modules may run at the same time.
    ///
    /// These are created anew: maps of variables and strings, arrays of programs, maps for which [`map`](Self::map),
    /// [`max_entries`](Self::max_entries) or [`fresh_map`](Self::fresh_map) says something.
    #[must_use]
    pub fn reuse_maps(mut self, old: &Module) -> Self {
        let state = old.maps.iter().filter(|map| map.programs().is_none() && !old.is_section(map));
        self.older = state.cloned().collect();
        self
    }

    /// Creates the map with this name anew, whatever [`reuse_maps`](Self::reuse_maps) would take: for example because
    /// its structures have grown. [`Module::migrate_from`](crate::Module::migrate_from) then copies its elements.
    #[must_use]
    pub fn fresh_map(mut self, name: &str) -> Self {
        self.fresh.insert(name.to_owned());
        self
    }

    /// Creates the map with this name with another capacity. Programs are verified for that capacity.
    #[must_use]
    pub fn max_entries(mut self, map: &str, entries: u32) -> Self {
        self.max_entries.insert(map.to_owned(), entries);
        self
    }

    /// Sets a global variable, `const volatile` ones included, before the programs are loaded. Constants cannot be
    /// changed later: their maps are frozen.
    #[must_use]
    pub fn variable(mut self, name: &str, bytes: &[u8]) -> Self {
        self.variables.insert(name.to_owned(), bytes.to_vec());
        self
    }

    /// Charges what this load creates to a tenant: programs, code, maps and what they will hold. Maps that are
    /// [given](Self::map) stay charged to those for whom they were created. If a quota is used up by what waits for
    /// readers, the load waits for them, unless it is in a run.
    #[must_use]
    pub fn tenant(mut self, tenant: &Arc<Tenant>) -> Self {
        self.tenant = Some(Arc::clone(tenant));
        self
    }

    /// Sets a global variable before the programs are loaded, as [`variable`](Self::variable) does. The load compares
    /// the type with the variable's: see [the module](crate::typed).
    ///
    /// A load fails with [`Error::TypeMismatch`] if they differ.
    #[cfg(feature = "typed")]
    #[must_use]
    pub fn set<T: zerocopy::IntoBytes + zerocopy::Immutable + 'static>(
        mut self,
        name: &str,
        value: T,
    ) -> Self {
        self.claims.insert(name.to_owned(), crate::typed::Shape::of::<T>());
        self.variable(name, value.as_bytes())
    }

    /// Receives the lines of the verifier's log, in the syntax of Linux's verifier, without line ends: one and more
    /// for each instruction on each path.
    #[must_use]
    pub fn log(mut self, line: impl FnMut(&str) + 'a) -> Self {
        self.log = Some(Box::new(line));
        self
    }

    /// Verifies, creates, compiles and installs.
    ///
    /// A map is created if a loaded program reaches it, if it is put into a created map, or if this load gives a
    /// capacity for it or a variable in it. Other maps are created if the whole object is loaded, but one of them of
    /// a kind, with flags or of a size that skep does not provide, or without a capacity, does not fail the load:
    /// [`Module::unused_maps`](crate::Module::unused_maps).
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] for a name that the object lacks; [`Error::Object`] if a program cannot be linked;
    /// [`Error::ForeignType`]; [`Error::Refused`] by the verifier; [`Error::TypeNotProvided`],
    /// [`Error::FieldNotProvided`]; [`Error::HelperMissing`], [`Error::NotProvided`]; [`Error::Map`],
    /// [`Error::MapMismatch`] and [`Error::GivenMap`]; [`Error::WrongProgram`], [`Error::OtherRuntime`],
    /// [`Error::EntryMissing`] and [`Error::NoSuchEntry`] for arrays of programs and of maps; [`Error::VariableSize`];
    /// [`Error::Compile`] and [`Error::Text`]; [`Error::Quota`]. Nothing stays loaded.
    pub fn load(mut self) -> Result<Module, Error> {
        self.take_over();
        let _span = observe::loading(self.tenant.as_deref());
        let mut verified = Vec::new();
        let loaded = self.load_unobserved(&mut verified).map_err(|error| match error {
            Error::Map(error) => Error::of_map(error),
            error => error,
        });
        let observed = &self.runtime.shared().observed;
        if !observed.listens() {
            return loaded;
        }
        let mut known = HashSet::new();
        let names = verified.iter().map(|program: &AuditedProgram| &*program.name);
        let mut wanted: Vec<String> = self.wanted().into_iter().chain(names).map(str::to_owned).collect();
        wanted.retain(|name| known.insert(name.clone()));
        let maps = loaded.as_ref().map_or(&[][..], |module| &module.maps);
        let event = || observe::load(self.object, &wanted, &verified, maps);
        let told = observed.tell(self.tenant.as_deref(), loaded.as_ref().err(), event);
        // What was refused is refused for its own reason.
        loaded.and_then(|module| told.map(|()| module))
    }

    /// The names of the programs that are to be loaded, without those that others lead to.
    fn wanted(&self) -> Vec<&str> {
        match &self.only {
            Some(name) => std::iter::once(name).chain(&self.and).map(String::as_str).collect(),
            None => self.object.programs(),
        }
    }

    /// Loads. `accepted` receives the programs that the verifier accepted.
    fn load_unobserved(&mut self, accepted: &mut Vec<AuditedProgram>) -> Result<Module, Error> {
        let mut log = self.log.take();
        let shared = self.runtime.shared();
        #[cfg(feature = "signatures")]
        if let Some(keys) = &shared.signers {
            self.object.verify_signature(&**keys)?;
        }
        let helpers = |id| shared.proto(id);
        let variables = self.object.variables();
        self.check_names(&variables)?;
        let mut wanted = self.wanted();
        let mut known: HashSet<&str> = HashSet::new();
        wanted.retain(|name| known.insert(name));
        // The maps' first contents, until a program names the map.
        let mut entries = self.entries_by_map();
        // Programs first: a refused program should not cost the creation of large maps.
        let definitions = self.definitions(&variables)?;
        let mut verified = Vec::with_capacity(wanted.len());
        let mut next = 0;
        while let Some(&name) = wanted.get(next) {
            next += 1;
            let started = Instant::now();
            let config = Config {
                helpers: &helpers,
                max_walked: self
                    .tenant
                    .as_ref()
                    .map_or(u64::MAX, |tenant| tenant.max_walked)
                    .min(shared.max_walked),
                privileged: shared.privileged,
                confined: shared.confined,
                strict_alignment: self.rules.strict_alignment,
                abilities: self.rules.abilities,
                any_table: true,
                own_objects: true,
                // Tests run programs in checking mode.
                max_recorded: if cfg!(test) { 1 << 17 } else { 0 },
                ..Config::default()
            };
            let log = log.as_mut().map(|log| &mut **log as _);
            let program = self.object.verify_for(
                (config, &shared.hosts),
                name,
                self.options,
                self.targets.get(name),
                &definitions,
                log,
            )?;
            let link = started
                .elapsed()
                .saturating_sub(std::time::Duration::from_nanos(program.stats().nanoseconds));
            if shared.observed.listens() {
                accepted.push(observe::program(&program));
            }
            check_context(&program)?;
            self.check_helpers(&program)?;
            provides::check(&program, self.object.host_types())?;
            if provides::holds_machine_objects(&program) {
                // The runtime's, not the tenant's: all programs share them.
                let memory = self.runtime.memory();
                let layout = machine_objects::layouts(&shared.dispatch, &memory, shared.map_memory);
                shared.machine_objects.prepare(layout)?;
            }
            for entry in reached_maps(&program).iter().filter_map(|map| entries.remove(map)).flatten() {
                steps(1);
                if let EntryTarget::Program(name) = &entry.target
                    && known.insert(name)
                {
                    wanted.push(name);
                }
            }
            verified.push((program, link));
        }
        let reached = verified.iter().flat_map(|(program, _)| reached_maps(program)).collect();
        let MapsOfLoad { by_index: maps, unused } = self.create_maps(&definitions, &variables, reached)?;
        let types = self.types(verified.iter().map(|(program, _)| program))?;
        let patchable = self.object.types().filter(|_| self.patchable && !shared.jit.fixed_code).cloned();
        let ends = shared.ends(verified.iter().map(|(program, _)| program), patchable.is_some());
        let linkage = Arc::new(Linkage {
            types: types.as_ref().map_or(0, |types| Arc::as_ptr(types).expose_provenance() as u64),
            kept: types.map(|types| types as _),
            ..self.linkage(&maps, ends)
        });
        let programs: Vec<Program> = verified
            .into_iter()
            .map(|(program, link_time)| {
                let host = self.object.host_types();
                let choices = (patchable.clone(), self.tenant.as_ref());
                Program::load(shared, program, Arc::clone(&linkage), &maps, host, link_time, choices)
            })
            .collect::<Result<_, _>>()?;
        let dispatch = &shared.dispatch;
        let created = || maps.iter().flatten();
        let arrays = created().filter(|map| map.programs().is_some());
        let arrays = arrays.map(|map| ProgramArray::new(Arc::clone(map), Arc::clone(shared))).collect();
        let of = |kind| created().filter(move |map| map.kind() == kind).map(Arc::clone);
        let outer = of(MapKind::ArrayOfMaps).map(|map| MapArray::new(map, Arc::clone(dispatch))).collect();
        let tables = of(MapKind::HashOfMaps).map(|map| MapHash::new(map, Arc::clone(dispatch))).collect();
        created().for_each(|map| shared.registry.add_map(map));
        let variables = of_created(variables, &maps);
        let created = created().map(Arc::clone).collect();
        let ops = crate::ops::tables(self.object, &programs)?;
        let types = self.object.types().cloned();
        let map_types = definitions.iter().zip(&maps).filter(|(_, map)| map.is_some());
        let map_types = map_types.map(|(def, _)| (def.key_btf, def.value_btf)).collect();
        let module = Module {
            programs,
            maps: created,
            arrays,
            outer,
            tables,
            ops,
            variables,
            unused,
            types,
            map_types,
        };
        self.fill(&module, &maps)?;
        if module.maps.iter().any(|map| map.references().is_some()) {
            // Programs that the host has dropped meanwhile.
            shared.dispatch.request_collection();
        }
        Ok(module)
    }

    /// Gives the maps of the older module.
    fn take_over(&mut self) {
        for map in std::mem::take(&mut self.older) {
            let name = map.name();
            let known = self.object.maps().iter().any(|def| def.name == name);
            let decided = self.fresh.contains(name) || self.max_entries.contains_key(name);
            if known && !decided {
                self.given.entry(name.to_owned()).or_insert(map);
            }
        }
    }

    /// The first contents of created maps, by the maps' indices.
    fn entries(&self) -> impl Iterator<Item = (usize, &'a MapEntry)> {
        let object: &'a Object = self.object;
        let maps = object.elf().map_or(&[][..], |elf| elf.maps()).iter().enumerate();
        let created = maps.filter(|(_, map)| !self.given.contains_key(&map.def.name));
        created.flat_map(|(index, map)| map.entries.iter().map(move |entry| (index, entry)))
    }

    /// The same, by map.
    fn entries_by_map(&self) -> HashMap<usize, Vec<&'a MapEntry>> {
        let mut by_map: HashMap<usize, Vec<&'a MapEntry>> = HashMap::new();
        for (map, entry) in self.entries() {
            by_map.entry(map).or_default().push(entry);
        }
        by_map
    }

    /// Fills maps of maps, where the key of an element is its index, and those arrays of programs that a loaded program
    /// can reach.
    fn fill(&self, module: &Module, maps: &[Option<Arc<Map>>]) -> Result<(), Error> {
        let at = |map: &Arc<Map>| Arc::as_ptr(map).addr();
        let arrays: HashMap<_, _> = module.arrays.iter().map(|array| (at(array.map()), array)).collect();
        let outer: HashMap<_, _> = module.outer.iter().map(|array| (at(array.map()), array)).collect();
        let tables: HashMap<_, _> = module.tables.iter().map(|table| (at(table.map()), table)).collect();
        let mut programs: HashMap<&str, &Program> = HashMap::new();
        for program in &module.programs {
            programs.entry(program.name()).or_insert(program);
        }
        for (map, entry) in self.entries() {
            steps(1);
            let Some(map) = &maps[map] else { continue };
            let name = match &entry.target {
                EntryTarget::Program(name) => name,
                EntryTarget::Map(inner) => {
                    let Some(inner) = &maps[*inner as usize] else { continue };
                    if let Some(array) = outer.get(&at(map)) {
                        array.set(entry.index, inner)?;
                    }
                    if let Some(table) = tables.get(&at(map)) {
                        table.set(&entry.index.to_ne_bytes(), inner)?;
                    }
                    continue;
                }
            };
            let Some(array) = arrays.get(&at(map)) else { continue };
            match programs.get(&**name) {
                Some(program) => drop(array.set(entry.index, program)?),
                // No loaded program reaches it.
                None if self.only.is_some() => {}
                None => {
                    let (map, program) = (map.name().to_owned(), name.clone());
                    return Err(Error::EntryMissing { map, index: entry.index, program });
                }
            }
        }
        Ok(())
    }

    fn check_names(&self, variables: &[Variable]) -> Result<(), Error> {
        let unknown = |what, name: &String, known: Vec<String>| {
            let name = name.clone();
            if known.contains(&name) { Ok(()) } else { Err(Error::Unknown { what, name, known }) }
        };
        let maps = || self.object.maps().iter().map(|def| def.name.clone()).collect();
        for name in self.given.keys().chain(self.max_entries.keys()) {
            unknown("map", name, maps())?;
        }
        if let Some(map) = self.max_entries.keys().find(|name| self.given.contains_key(*name)) {
            return Err(Error::GivenMap { map: map.clone(), what: "max_entries".to_owned() });
        }
        if let Some(name) = self.fresh.iter().find(|name| !maps().contains(*name)) {
            unknown("map", name, maps())?;
        }
        #[cfg(feature = "typed")]
        for (name, claim) in &self.claims {
            unknown("variable", name, variables.iter().map(|variable| variable.name.clone()).collect())?;
            for variable in variables.iter().filter(|variable| variable.name == *name) {
                crate::typed::check(self.object, variable, claim)?;
            }
        }
        for (name, bytes) in &self.variables {
            unknown("variable", name, variables.iter().map(|variable| variable.name.clone()).collect())?;
            if let Some(variable) = variables.iter().find(|v| v.name == *name && v.size != bytes.len()) {
                let (expected, given) = (variable.size, bytes.len());
                return Err(Error::VariableSize { name: name.clone(), expected, given });
            }
            let homes = variables.iter().filter(|v| v.name == *name).map(|v| &self.object.maps()[v.map].name);
            if let Some(map) = homes.into_iter().find(|map| self.given.contains_key(*map)) {
                return Err(Error::GivenMap { map: map.clone(), what: name.clone() });
            }
        }
        Ok(())
    }

    /// Checks that every helper that the program reaches has an implementation.
    fn check_helpers(&self, program: &Verified) -> Result<(), Error> {
        let helpers = &self.runtime.shared().helpers;
        for (insn, fact) in program.insns().iter().zip(program.facts()) {
            if let (Insn::Call { target: CallTarget::Helper(id) }, true) = (insn, fact.reached) {
                match helpers.get(id) {
                    Some(helper) if helper.call.is_some() => {}
                    known => {
                        let helper = known.map_or("unknown", |known| &known.proto.name).to_owned();
                        return Err(Error::HelperMissing {
                            program: program.name().to_owned(),
                            helper,
                            id: *id,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// The layouts of the objects that these programs allocate, if any.
    fn types<'p>(
        &self,
        programs: impl Iterator<Item = &'p Verified>,
    ) -> Result<Option<Arc<helpers::objects::Types>>, Error> {
        let wanted: BTreeSet<(u32, bool)> = programs.flat_map(Verified::allocated).copied().collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let shared = self.runtime.shared();
        let memory = self.memory();
        let layout = |(ty, per_cpu): (u32, bool)| {
            let (name, shape) = self.allocated_type(ty, per_cpu)?;
            let layout = shared.dispatch.objects.layout(&memory, shared.map_memory, &shape);
            let layout = layout.map_err(|source| Error::ObjectType { ty: name, source })?;
            Ok(((ty, per_cpu), layout))
        };
        let layouts = wanted.into_iter().map(layout).collect::<Result<_, Error>>()?;
        Ok(Some(Arc::new(helpers::objects::Types::new(layouts))))
    }

    /// The name of a type of which programs allocate objects, and what these are made of.
    fn allocated_type(&self, ty: u32, per_cpu: bool) -> Result<(String, Shape), Error> {
        if ty == CPU_MASK {
            return Ok(("struct bpf_cpumask".to_owned(), Mask::shape(self.runtime.cpus())));
        }
        let damaged = |source: skep_btf::Error| Error::Object(source.into());
        // Only programs with types allocate others.
        let types = self.object.types().ok_or_else(|| damaged(skep_btf::Error::TypeMissing { id: ty }))?;
        let fields = types.special_fields(ty).map_err(damaged)?;
        let shape =
            Shape { bytes: types.size(ty).map_err(damaged)?, fields, per_cpu, contents: Contents::Program };
        Ok((types.type_name(ty).unwrap_or_default(), shape))
    }

    /// The memory for what this load creates.
    fn memory(&self) -> Reclamation {
        self.tenant.as_ref().map_or_else(|| self.runtime.memory(), |tenant| tenant.memory(&self.runtime))
    }

    fn linkage(&self, maps: &[Option<Arc<Map>>], ends: Option<EndsLink>) -> Linkage {
        let shared = self.runtime.shared();
        let known = &shared.helpers;
        // A load of maps alone leaves it open where an arena begins.
        if !self.object.programs().is_empty() {
            maps.iter().flatten().filter_map(|map| map.arena()).for_each(|arena| _ = arena.start());
        }
        let records = ends.is_some();
        // Programs share these: there are hundreds.
        let Calls { helpers, functions } = shared.calls[usize::from(records)].get_or_init(|| {
            let form = |id: u32| recorded::helper(id).filter(|_| records && shared.linux_numbers);
            let call = |(id, helper): (&u32, &Helper)| Some((*id, form(*id).or(helper.call)?));
            Calls {
                helpers: known.iter().filter_map(call).collect(),
                functions: if records { recorded::functions() } else { helpers::own::provided() }.into(),
            }
        });
        Linkage {
            maps: maps.iter().map(|map| map.as_ref().map(|map| map.link()).unwrap_or_default()).collect(),
            helpers: Arc::clone(helpers),
            inline_linux_helpers: shared.linux_numbers,
            functions: Arc::clone(functions),
            ends,
            states: known.iter().filter_map(|(id, helper)| Some((*id, helper.noted()?))).collect(),
            ..Linkage::default()
        }
    }
}

/// The maps that a program's reached instructions name, ascending.
fn reached_maps(program: &Verified) -> BTreeSet<usize> {
    let reached = program.insns().iter().zip(program.facts()).filter(|(_, fact)| fact.reached);
    let named = reached.filter_map(|(insn, _)| match insn {
        Insn::LoadImm64 { value: Imm64::Map(map) | Imm64::MapValue { map, .. }, .. } => Some(*map as usize),
        _ => None,
    });
    named.collect()
}

/// The variables in maps that were created. Those know their maps by their places among the created ones.
fn of_created(variables: Vec<Variable>, maps: &[Option<Arc<Map>>]) -> Vec<Variable> {
    let place = |map: usize| maps[map].is_some().then(|| maps[..map].iter().flatten().count());
    let moved =
        variables.into_iter().filter_map(|variable| Some(Variable { map: place(variable.map)?, ..variable }));
    moved.collect()
}

/// Checks that skep runs the program's type and provides the fields of the context that it accesses.
fn check_context(program: &Verified) -> Result<(), Error> {
    let (name, program_type) = (program.name().to_owned(), program.program_type().name);
    if program.program_type().native.is_none() && !program.is_watcher() {
        return Err(Error::TypeNotProvided { program: name, program_type });
    }
    match program.facts().iter().find_map(|fact| fact.foreign) {
        Some(field) => Err(Error::FieldNotProvided { program: name, program_type, field: field.name }),
        None => Ok(()),
    }
}
