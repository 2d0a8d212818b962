//! The object as its users see it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use skep_abi::{AttachTo, Context, MapDef, MapFlags, MapKind, ProgramSource, ProgramType, Section};
use skep_btf::Btf;

use crate::config;
use crate::elf::{Content, Elf};
use crate::error::Error;
use crate::externs::{Externs, KCONFIG};
use crate::functions::Functions;
use crate::options::LinkOptions;
use crate::records::Records;
use crate::steps::steps;
use crate::struct_ops::Members;
use crate::symbols::Symbols;
use crate::{data, exceptions, lines, link, maps, types};

/// A BPF object file, taken apart and checked.
///
/// What concerns the whole file is checked by [`Object::parse`]; what concerns one program (relocations,
/// instructions, lines) by [`Program::source`], so that a program that cannot be used does not keep its
/// neighbours from running.
#[derive(Clone, Debug)]
pub struct Object {
    programs: Vec<Program>,
    /// Numbers of programs, ascending by their names, which differ.
    by_name: Vec<u32>,
    maps: Vec<ObjectMap>,
    license: String,
    parsed: Arc<Parsed>,
}

/// A program of an object, not yet linked.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    section: String,
    function: usize,
    object: Arc<Parsed>,
    /// By configuration value: whether it is known.
    config: Arc<[bool]>,
}

/// A map of an object: declared in `.maps`, or made from a section of global variables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectMap {
    /// Its definition. Maps of global variables are named after their sections (`.rodata`).
    pub def: MapDef,
    /// The first contents of its only element, for maps of global variables that are not all zeroes: exactly
    /// `def.value_size` bytes.
    pub initial: Option<Arc<[u8]>>,
    /// The variables in it, ascending by offset; empty for declared maps.
    pub variables: Vec<Variable>,
    /// What its elements hold at first, for maps of maps and of programs.
    pub entries: Vec<MapEntry>,
    /// The key's type as C writes it, if declared by type.
    pub key_type: Option<String>,
    /// The value's type as C writes it, if declared by type.
    pub value_type: Option<String>,
    /// Whether the declaration asks for it to be shared by name (`LIBBPF_PIN_BY_NAME`).
    pub pinned: bool,
}

/// A global variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name; `function.variable` for a static variable of a function.
    pub name: String,
    /// Bytes from the start of the map's value.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
    /// Whether programs may only read it.
    pub read_only: bool,
    /// Its type as C writes it, without qualifiers; `None` without type information.
    pub type_name: Option<String>,
}

/// An element of a map of maps or of programs that is filled from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Its index; in a hash table, its key.
    pub index: u32,
    /// What it holds.
    pub target: EntryTarget,
}

/// What an element of a map holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryTarget {
    /// The map of this index in the object's list.
    Map(u32),
    /// The program of this name.
    Program(String),
}

impl Object {
    /// Reads an object file. Memory is bounded by a multiple of the file's size.
    ///
    /// # Errors
    ///
    /// Where the file is no BPF object or is damaged, where type information is damaged, and where a map's
    /// declaration means nothing. [`Error`] says what and where.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let elf = Elf::parse(bytes)?;
        let btf = types::types(&elf)?;
        let btf_ref = btf.as_deref();
        let ext = btf_ref.map(|btf| types::ext(&elf, btf)).transpose()?.flatten();
        let functions = Functions::parse(&elf)?;
        let mut roles = vec![Role::Other; elf.sections.len()];
        let mut object_maps = Vec::new();
        let mut map_ranges = Vec::new();
        if let Some(section) = elf.section(maps::SECTION) {
            roles[section] = Role::Maps;
            for declared in maps::declared(&elf, btf_ref, &functions, section)? {
                object_maps.push(declared.map);
                map_ranges.push(declared.range);
            }
        }
        for (index, section) in elf.sections.iter().enumerate() {
            let legacy = &*section.name == "maps" || section.name.starts_with("maps/");
            if legacy && section.content == Content::Data && section.size > 0 {
                return Err(Error::LegacyMaps { section: section.name.to_string() });
            }
            if data::is_data(section) {
                // Fits: there are fewer sections than bytes in the file, and a section number has 32 bits.
                roles[index] = Role::Data(object_maps.len() as u32);
                object_maps.push(data::map(&elf, index)?);
            }
        }
        let map_of = |section: usize| match roles[section] {
            Role::Data(map) => Some(map as usize),
            _ => None,
        };
        data::variables(&elf, btf_ref, map_of, &mut object_maps)?;
        let externs = Externs::parse(&elf, btf_ref)?;
        let exception_callbacks = exceptions::callbacks(&elf, btf_ref, &functions)?;
        let members = Members::parse(&elf, btf_ref)?;
        let config_map = (!externs.config.is_empty()).then(|| {
            object_maps.push(ObjectMap::of_config(&externs));
            object_maps.len() as u32 - 1
        });
        let license = license(&elf);
        let gpl_compatible = is_gpl_compatible(&license);
        let object = Arc::new(Parsed {
            elf,
            btf,
            ext,
            roles,
            map_ranges,
            functions,
            exception_callbacks,
            members,
            externs,
            config_map,
            gpl_compatible,
        });
        let programs = object.programs()?;
        // Fits: there are fewer programs than bytes in the file, and a name's offset has 32 bits.
        let mut by_name: Vec<u32> = (0..programs.len() as u32).collect();
        by_name.sort_unstable_by(|a, b| programs[*a as usize].name.cmp(&programs[*b as usize].name));
        Ok(Self { programs, by_name, maps: object_maps, license, parsed: object })
    }

    /// Its programs, in the order of their sections.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The program of that name.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchProgram`], which lists those that exist, or [`Error::NoProgram`].
    pub fn program(&self, name: &str) -> Result<&Program, Error> {
        let place = self.by_name.binary_search_by(|&number| {
            steps(1);
            self.programs[number as usize].name.as_str().cmp(name)
        });
        match place {
            Ok(place) => Ok(&self.programs[self.by_name[place] as usize]),
            Err(_) if self.programs.is_empty() => Err(Error::NoProgram),
            Err(_) => Err(Error::NoSuchProgram { name: name.into(), known: self.program_names() }),
        }
    }

    /// The only program.
    ///
    /// # Errors
    ///
    /// [`Error::SeveralPrograms`] or [`Error::NoProgram`].
    pub fn only_program(&self) -> Result<&Program, Error> {
        match &*self.programs {
            [] => Err(Error::NoProgram),
            [program] => Ok(program),
            _ => Err(Error::SeveralPrograms { known: self.program_names() }),
        }
    }

    /// Its maps. Programs name them by their index here.
    pub fn maps(&self) -> &[ObjectMap] {
        &self.maps
    }

    /// The map of that name with its index.
    pub fn map(&self, name: &str) -> Option<(u32, &ObjectMap)> {
        (0..).zip(&self.maps).find(|(_, map)| map.def.name == name)
    }

    /// The global variable of that name, with the index of the map it is in.
    pub fn variable(&self, name: &str) -> Option<(u32, &Variable)> {
        let maps = (0..).zip(&self.maps);
        maps.flat_map(|(index, map)| map.variables.iter().map(move |variable| (index, variable)))
            .find(|(_, variable)| variable.name == name)
    }

    /// The value that a global variable has before any program runs; `None` stands for zeroes.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVariable`].
    pub fn initial_value(&self, name: &str) -> Result<Option<&[u8]>, Error> {
        let (map, variable) =
            self.variable(name).ok_or_else(|| Error::NoSuchVariable { name: name.into() })?;
        Ok(self.maps[map as usize].initial.as_ref().map(|bytes| &bytes[variable.range()]))
    }

    /// Gives a global variable another value before any program runs; the only way to change those in
    /// `.rodata`, which the verifier takes for constants. The first change in a section of zeroes makes room
    /// for all of it.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVariable`], and [`Error::VariableSize`] where `value` is not exactly as large as the
    /// variable.
    pub fn set_initial_value(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        let (map, variable) =
            self.variable(name).ok_or_else(|| Error::NoSuchVariable { name: name.into() })?;
        if value.len() != variable.size as usize {
            return Err(Error::VariableSize { name: name.into(), size: variable.size, given: value.len() });
        }
        let range = variable.range();
        self.maps[map as usize].change(|bytes| bytes[range].copy_from_slice(value));
        Ok(())
    }

    /// Whether anything in it depends on the types of the host that it is for: relocations of fields, names of its
    /// functions and variables, or programs of types that are given the host's own structures.
    pub fn refers_to_host(&self) -> bool {
        let relocated = self.parsed.ext.as_ref().is_some_and(|ext| !ext.core.is_empty());
        let given = |program: &Program| program.program_type().is_ok_and(|kind| kind.native.is_none());
        relocated || self.parsed.externs.names_host() || self.programs.iter().any(given)
    }

    /// Gives the variables that are declared with `__kconfig` their values, from the text of a configuration
    /// (`CONFIG_HZ=250`) and the release of the kernel that programs are for (`6.18.1`), which the text's heading
    /// says otherwise. Until then all of them are unknown.
    ///
    /// # Errors
    ///
    /// [`Error::ConfigValue`] where a variable cannot take its value.
    pub fn set_config(&mut self, text: &str, release: Option<&str>) -> Result<(), Error> {
        let object = &self.parsed;
        let Some(map) = object.config_map.and_then(|map| self.maps.get_mut(map as usize)) else {
            return Ok(());
        };
        let mut known = Ok(Vec::new());
        map.change(|bytes| {
            bytes.fill(0);
            known = config::fill(&object.externs.config, text, release, bytes);
        });
        let known: Arc<[bool]> = known?.into();
        for program in &mut self.programs {
            program.config = known.clone();
        }
        Ok(())
    }

    /// The types of the object, if it has any.
    pub fn btf(&self) -> Option<&Arc<Btf>> {
        self.parsed.btf.as_ref()
    }

    /// What the section `license` says; empty where there is none.
    pub fn license(&self) -> &str {
        &self.license
    }

    /// Whether its programs may call helpers that are for GPL-compatible programs.
    pub fn gpl_compatible(&self) -> bool {
        is_gpl_compatible(&self.license)
    }

    fn program_names(&self) -> Vec<String> {
        self.programs.iter().map(|program| program.name.clone()).collect()
    }
}

impl Program {
    /// Its name: that of its function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The section it is in.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// The type its section stands for.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSection`].
    pub fn program_type(&self) -> Result<&'static ProgramType, Error> {
        ProgramType::from_section(&self.section).ok_or_else(|| Error::UnknownSection {
            program: self.name.clone(),
            section: self.section.clone(),
        })
    }

    /// Links the program with the functions it calls. `program_type` overrides what its section says. Source
    /// lines come along cut to 512 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSection`] without an override, and everything that can be wrong with instructions,
    /// relocations and line records of the functions that it reaches.
    pub fn source(&self, program_type: Option<&'static ProgramType>) -> Result<ProgramSource, Error> {
        self.link(program_type, &LinkOptions::default())
    }

    /// The same for a system whose types are known.
    ///
    /// # Errors
    ///
    /// As [`Program::source`]; moreover [`Error::CoreRelocation`], [`Error::KernelSymbol`] and
    /// [`Error::ConfigMissing`] where the system lacks what the program needs.
    pub fn link(
        &self,
        program_type: Option<&'static ProgramType>,
        options: &LinkOptions<'_>,
    ) -> Result<ProgramSource, Error> {
        let program_type = match program_type {
            Some(program_type) => program_type,
            None => self.program_type()?,
        };
        let object = &*self.object;
        let symbols = Symbols::new(object, &self.config, options);
        let mut linked = link::link(object, &self.name, self.function, symbols)?;
        lines::prototypes(object, &mut linked.functions, &linked.origins)?;
        let (functions, origins) = (&linked.functions, &linked.origins);
        if let Some(target) = options.target {
            lines::relocate_to(object, target, functions, origins, &mut linked.insns)?;
        }
        let lines = lines::lines(object, functions, origins)?;
        Ok(ProgramSource {
            name: self.name.clone(),
            program_type,
            insns: linked.insns,
            functions: linked.functions,
            lines,
            gpl_compatible: object.gpl_compatible,
            sleepable: program_type.always_sleeps
                || (program_type.may_sleep
                    && Section::parse(&self.section).is_some_and(|found| found.sleepable)),
            target: self.target(program_type)?,
            btf: object.btf.clone(),
            externs: linked.externs,
        })
    }
}

impl Program {
    /// What it is attached to: the member of a structure that it was written into, or what its section says.
    fn target(&self, program_type: &ProgramType) -> Result<Option<String>, Error> {
        let object = &*self.object;
        let member = matches!(program_type.context, Context::Arguments { of: AttachTo::StructOps });
        if let Some(btf) = object.btf.as_deref().filter(|_| member) {
            let function = object.functions.function(self.function);
            if let Some(member) = object.members.name(btf, function)? {
                return Ok(Some(member));
            }
        }
        Ok(Section::parse(&self.section).and_then(|found| found.target).map(str::to_owned))
    }
}

impl ObjectMap {
    /// A map with nothing but its definition.
    pub(crate) fn new(def: MapDef) -> Self {
        Self {
            def,
            initial: None,
            variables: Vec::new(),
            entries: Vec::new(),
            key_type: None,
            value_type: None,
            pinned: false,
        }
    }

    /// The map of configuration values, all still unknown.
    fn of_config(externs: &Externs) -> Self {
        let zeroes: Arc<[u8]> = vec![0; externs.config_size as usize].into();
        let def = MapDef {
            flags: MapFlags::RDONLY_PROG,
            frozen: Some(zeroes.clone()),
            ..MapDef::new(KCONFIG, MapKind::Array, 4, externs.config_size, 1)
        };
        let variables = externs.config.iter().map(|config| config.variable()).collect();
        Self { initial: Some(zeroes), variables, ..Self::new(def) }
    }

    /// Changes the first contents of its only element. What programs take for constants changes with them.
    fn change(&mut self, change: impl FnOnce(&mut [u8])) {
        let constant = self.variables.first().is_some_and(|variable| variable.read_only);
        self.def.frozen = None; // so that there is one owner
        let size = self.def.value_size as usize;
        let bytes = self.initial.get_or_insert_with(|| vec![0; size].into());
        change(Arc::make_mut(bytes));
        self.def.frozen = constant.then(|| bytes.clone());
    }
}

impl Variable {
    /// The bytes of the map's value that it takes.
    pub fn range(&self) -> Range<usize> {
        let start = self.offset as usize;
        start..start + self.size as usize
    }
}

/// What programs share of the file.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) elf: Elf,
    pub(crate) btf: Option<Arc<Btf>>,
    pub(crate) ext: Option<Records>,
    /// By section.
    pub(crate) roles: Vec<Role>,
    /// Where the maps declared in `.maps` stand, by index.
    pub(crate) map_ranges: Vec<Range<u64>>,
    pub(crate) functions: Functions,
    /// By function: what its exceptions end in.
    pub(crate) exception_callbacks: HashMap<usize, Vec<usize>>,
    /// Which members of structures the functions are.
    members: Members,
    pub(crate) externs: Externs,
    /// The map of configuration values, if there are any.
    pub(crate) config_map: Option<u32>,
    gpl_compatible: bool,
}

/// What a section is to programs that refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Declarations of maps.
    Maps,
    /// The value of the map of this index.
    Data(u32),
    /// Code, or nothing that is loaded.
    Other,
}

impl Parsed {
    fn programs(self: &Arc<Self>) -> Result<Vec<Program>, Error> {
        let config: Arc<[bool]> = vec![false; self.externs.config.len()].into();
        let program = |&(symbol, function): &(usize, usize)| {
            let section = self.functions.function(function).section;
            Ok(Program {
                name: self.elf.symbol_name(&self.elf.symbols[symbol])?.into(),
                section: self.elf.sections[section].name.to_string(),
                function,
                object: self.clone(),
                config: config.clone(),
            })
        };
        self.functions.programs.iter().map(program).collect()
    }
}

fn license(elf: &Elf) -> String {
    let bytes = elf.section("license").map_or(&[][..], |section| elf.data(section));
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The licences that Linux counts as compatible (`license_is_gpl_compatible`, documented with
/// `MODULE_LICENSE`).
fn is_gpl_compatible(license: &str) -> bool {
    matches!(
        license,
        "GPL" | "GPL v2" | "GPL and additional rights" | "Dual BSD/GPL" | "Dual MIT/GPL" | "Dual MPL/GPL"
    )
}
