//! Maps as arguments: which helpers work on which kinds, and what a look-up finds.
//!
//! A map found in a map of maps has the definition of the outer map's template. Its number is that of the outer map
//! with the bit [`INNER`], so that all rules for values apply.

use crate::domain::value::{Kind, Value};
use crate::domain::words;
use crate::program::assumed::INNER;
use crate::program::assumed::MapView;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_abi::{ArgKind, Defect, HelperFlags, HelperProto, MapFlags, MapKind, SpecialFieldAt, StructKind};
use skep_isa::Reg;

impl<'a> Transfer<'a> {
    /// The definition of the map of that number.
    pub(crate) fn map(&self, number: u32) -> Checked<MapView<'a>> {
        let outer = self.env.outer_map(number & !INNER)?;
        if number & INNER == 0 {
            return Ok(outer);
        }
        outer.inner().ok_or_else(|| {
            Violation::new(
                Code::Structure,
                format!("the layout of the maps in {} is unknown: the map has no template", outer.name()),
            )
        })
    }

    /// Checks that a sleepable program of a Linux type may use a kind of map.
    pub(crate) fn check_map_of_sleeper(&self, def: MapView<'_>) -> Checked<()> {
        let of_linux = self.env.program_type().number.is_some();
        if !of_linux || !self.sleeps() || skep_abi::sleepers_use(def.kind()) {
            return Ok(());
        }
        let text = format!(
            "the map {} is a {}, which sleepable programs of type {} may not use",
            def.name(),
            def.kind(),
            self.env.program_type().name
        );
        Err(Violation::new(Code::Helper, text)
            .suggest(
                "use an array, hash, queue, ring buffer or storage map, or remove `.s` from the section name",
            )
            .in_linux("Sleepable programs can only use array, hash, ringbuf and local storage maps"))
    }

    /// The map of that index, which an instruction names: every path to a map begins here.
    pub(crate) fn named_map(&self, index: u32) -> Checked<MapView<'a>> {
        let map = self.env.outer_map(index)?;
        let at = |what: &str, at: SpecialFieldAt| {
            format!("the values of the map {} hold {what} {} at {}", map.name(), at.name, at.offset)
        };
        let text = match map.defect() {
            None => return self.check_special_map(map).map(|()| map),
            Some(Defect::Field(field)) => {
                format!("{}, {} bytes, where no such field may be", at("a", field), field.size)
            }
            Some(Defect::Repeated(field)) => format!("{}, but may hold only one", at("a second", field)),
            Some(_) => {
                format!("the maps in {} hold maps themselves, but maps of maps may not be nested", map.name())
            }
        };
        Err(Violation::new(Code::Structure, text))
    }

    /// The number of the map argument.
    pub(crate) fn map_argument(&self, proto: &HelperProto, reg: Reg, value: &Value) -> Checked<u32> {
        let number = match value.kind {
            Kind::Map { map } => map,
            Kind::InnerMap { map, maybe_null: false } => map | INNER,
            _ if value.is_maybe_null() => {
                let text = format!("{} is given {reg}, which may be null: {value}", proto.name);
                return Err(Violation::new(Code::MaybeNull, text)
                    .suggest(crate::step::alu::CHECK_NULL)
                    .in_linux(words::argument(reg, value, &["map_ptr"])));
            }
            _ => {
                let text = format!("{} expects a map in {reg}, found {value}", proto.name);
                let words = words::argument(reg, value, &["map_ptr"]);
                return Err(Violation::new(Code::Argument, text).in_linux(words));
            }
        };
        self.check_map_call(proto, self.map(number)?)?;
        Ok(number)
    }

    /// Whether a helper can work on that map.
    fn check_map_call(&self, proto: &HelperProto, def: MapView<'_>) -> Checked<()> {
        if !works_on(proto, def.kind()) {
            let text =
                format!("{} does not work on the map {}, which is a {}", proto.name, def.name(), def.kind());
            let words = match proto.is_of_linux() {
                true => format!(
                    "cannot pass map_type {} into func bpf_{}#{}",
                    def.kind().number(),
                    proto.name,
                    proto.id
                ),
                false => format!("cannot pass map_type {} into func {}", def.kind().number(), proto.name),
            };
            return Err(Violation::new(Code::Argument, text).in_linux(words));
        }
        let writes = proto.flags.has(HelperFlags::WRITES_ELEMENTS);
        let reads = proto.flags.has(HelperFlags::READS_ELEMENTS);
        if is_of_sockets(def.kind()) && !self.env.program_type().socket_maps.allow(proto.flags) {
            let text = format!(
                "programs of type {} may not change the socket map {} with {}",
                self.env.program_type().name,
                def.name(),
                proto.name
            );
            return Err(Violation::new(Code::Helper, text).in_linux("cannot update sockmap in this context"));
        }
        let denied = (writes && def.flags().contains(MapFlags::RDONLY_PROG))
            || (reads && def.flags().contains(MapFlags::WRONLY_PROG));
        if denied {
            let text = format!("{} is not allowed on the map {} by its flags", proto.name, def.name());
            return Err(Violation::new(Code::ReadOnly, text));
        }
        Ok(())
    }

    /// What a look-up in the map of that number finds; `found_in` is the map argument.
    pub(crate) fn looked_up(
        &mut self,
        number: u32,
        found_in: &Value,
        maybe_null: bool,
    ) -> Checked<(Value, bool)> {
        let def = self.map(number)?;
        let (kind, acquires) = match def.kind() {
            MapKind::ArrayOfMaps | MapKind::HashOfMaps => (Kind::InnerMap { map: number, maybe_null }, false),
            MapKind::Xskmap => (Kind::Struct { of: StructKind::XdpSock, maybe_null }, false),
            MapKind::Sockmap | MapKind::Sockhash => (Kind::Struct { of: StructKind::Sock, maybe_null }, true),
            _ => (Kind::MapValue { map: number, maybe_null }, false),
        };
        let mut value = self.named(kind);
        if value.id == 0 && self.keeps_identity(kind) {
            value.id = self.new_id();
        }
        if let Kind::InnerMap { .. } = found_in.kind
            && matches!(kind, Kind::MapValue { .. })
            && !def.fields().is_empty()
        {
            // Tells apart the inner maps that it may be in.
            value.reference = found_in.id;
        }
        Ok((value, acquires))
    }
}

/// Whether a map holds sockets.
pub(crate) fn is_of_sockets(kind: MapKind) -> bool {
    matches!(kind, MapKind::Sockmap | MapKind::Sockhash)
}

/// Whether a helper works on maps of that kind.
fn works_on(proto: &HelperProto, kind: MapKind) -> bool {
    // A host's own helper for elements needs a map with elements.
    let elements = proto.args.iter().any(|arg| matches!(arg, ArgKind::MapKey | ArgKind::MapValue(_)));
    proto.works_on(kind) && (proto.is_of_linux() || !elements || ELEMENTS.contains(&kind))
}

/// Maps of elements that programs look up and change.
const ELEMENTS: &[MapKind] = &[
    MapKind::Array,
    MapKind::Hash,
    MapKind::LpmTrie,
    MapKind::LruHash,
    MapKind::LruPercpuHash,
    MapKind::PercpuArray,
    MapKind::PercpuHash,
];
