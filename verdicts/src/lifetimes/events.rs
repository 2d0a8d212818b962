//! The events: each begins, uses or ends an object's life.

use super::tables::{ACQUIRES, FIELDS, Family, ITERATORS, Thing, USES, Use};
use super::{Maker, Object, Reference, register};

/// The frequency of each event, out of [`TIMES`].
const EVENTS: &[(usize, Event)] = &[
    (12, Event::ReadSection),
    (4, Event::Preemption),
    (9, Event::Acquire),
    (6, Event::Release),
    (18, Event::Walk),
    (14, Event::Use),
    (12, Event::Iterator),
    (9, Event::Dynptr),
    (6, Event::Call),
    (10, Event::Callback),
    (5, Event::Static),
    (4, Event::Global),
    (6, Event::Map),
    (4, Event::Kept),
    (3, Event::Lock),
    (9, Event::Current),
    (4, Event::Packet),
    (2, Event::TailCall),
    (3, Event::Check),
];

#[derive(Clone, Copy)]
enum Event {
    ReadSection,
    Preemption,
    Acquire,
    Release,
    Walk,
    Use,
    Iterator,
    Dynptr,
    Call,
    Callback,
    Static,
    Global,
    Map,
    Kept,
    Lock,
    Current,
    Packet,
    TailCall,
    Check,
}

/// Kinds of maps to look up elements in.
const LOOKED_UP: &[&str] =
    &["array", "hash", "trie", "percpu", "lru", "stacks", "outer", "bloom", "events", "groups", "queue"];

impl Maker<'_> {
    pub(super) fn event(&mut self) -> Result<(), String> {
        let times: usize = EVENTS.iter().map(|event| event.0).sum();
        let mut left = self.chance.below(times);
        let mut chosen = Event::Use;
        for (times, event) in EVENTS {
            if left < *times {
                chosen = *event;
                break;
            }
            left -= times;
        }
        match chosen {
            Event::ReadSection => self.section(0, "bpf_rcu_read_lock", "bpf_rcu_read_unlock"),
            Event::Preemption => self.section(1, "bpf_preempt_disable", "bpf_preempt_enable"),
            Event::Acquire => self.acquire(),
            Event::Release => self.release(),
            Event::Walk => self.walk()?,
            Event::Use => self.use_object()?,
            Event::Iterator => self.iterate(),
            Event::Dynptr => self.dynptr(),
            Event::Call => self.call(),
            Event::Callback => self.callback()?,
            Event::Static => self.static_function()?,
            Event::Global => self.global_function(),
            Event::Map => self.map(),
            Event::Kept => self.kept(),
            Event::Lock => self.lock()?,
            Event::Current => self.current(),
            Event::Packet => self.packet(),
            Event::TailCall => self.tail_call(),
            Event::Check => {
                let unchecked = |at: &usize| self.objects[*at].is_some_and(|object| object.unchecked);
                if let Some(at) = (0..3).find(unchecked) {
                    self.named("check");
                    self.check(at);
                }
            }
        }
        Ok(())
    }

    fn named(&mut self, name: &str) {
        self.names.push(name.to_owned());
    }

    fn family(&self) -> Family {
        self.stage.family
    }

    fn section(&mut self, at: usize, enter: &str, leave: &str) {
        let call = if self.sections[at] { leave } else { enter };
        self.sections[at] = !self.sections[at];
        self.names.push(call.trim_start_matches("bpf_").trim_start_matches("rcu_read_").replace('_', "."));
        self.emit(&format!("call kfunc[{call}]"));
    }

    fn acquire(&mut self) {
        let family = self.family();
        let fits: Vec<_> = ACQUIRES.iter().filter(|row| row.2.contains(&family)).collect();
        let Some((thing, name, _, text, release)) = self.chance.one(&fits).copied() else { return };
        self.named(name);
        self.emit(text);
        self.own(*thing, release);
    }

    /// Records that the result in `r0` is a reference or null.
    fn own(&mut self, thing: Thing, release: &'static str) {
        let slot = self.slots;
        self.slots += 8;
        self.emit(&format!("*(u64 *)(r10 - {slot}) = r0"));
        self.check_or_leave("r0", None);
        self.references.push(Reference { slot, release });
        self.keep(thing, false);
    }

    fn release(&mut self) {
        if self.references.is_empty() {
            return;
        }
        let at = self.chance.below(self.references.len());
        let reference = self.references[at];
        self.named("release");
        self.emit(&format!("r1 = *(u64 *)(r10 - {}); call {}", reference.slot, reference.release));
        if self.chance.percent(96) {
            self.references.remove(at);
        }
    }

    /// An object that a register holds.
    fn object(&mut self) -> Option<(usize, Object)> {
        let held: Vec<_> =
            self.objects.iter().enumerate().filter_map(|(at, object)| Some((at, (*object)?))).collect();
        self.chance.one(&held).copied()
    }

    fn walk(&mut self) -> Result<(), String> {
        let Some((at, object)) = self.object() else { return Ok(()) };
        let fits: Vec<_> = FIELDS.iter().filter(|row| row.0 == object.thing).collect();
        let Some((_, of, member, thing)) = self.chance.one(&fits).copied() else { return Ok(()) };
        let to = if self.chance.percent(50) { at } else { self.chance.below(3) };
        let offset = self.offset(of, member)?;
        self.names.push(member.replace('_', "."));
        self.emit(&format!("{} = *(u64 *)({} + {offset})", register(to), register(at)));
        self.objects[to] = Some(Object { thing: *thing, unchecked: true });
        if self.chance.percent(60) {
            self.check(to);
        }
        Ok(())
    }

    /// A call or load that uses an object of that kind.
    fn use_of(&mut self, thing: Thing) -> Option<&'static Use> {
        let (family, sleeps) =
            (self.family(), self.stage.section.contains(".s") || self.stage.section == "syscall");
        let fits = |row: &&Use| row.of == thing && row.families.contains(&family) && (sleeps || !row.sleeps);
        let fits: Vec<_> = USES.iter().filter(fits).collect();
        self.chance.one(&fits).copied()
    }

    pub(super) fn use_object(&mut self) -> Result<(), String> {
        let Some((at, object)) = self.object() else { return Ok(()) };
        let Some(row) = self.use_of(object.thing) else { return Ok(()) };
        self.named(row.name);
        self.emit(&row.text.replace("{}", register(at)));
        Ok(())
    }

    fn iterate(&mut self) {
        let Some(of) = self.iterator else { return self.new_iterator() };
        let (name, element, ..) = ITERATORS[of];
        if self.chance.percent(70) {
            self.named("next");
            self.emit(&format!("r1 = r10; r1 += -48; call kfunc[bpf_iter_{name}_next]"));
            match element {
                Some(thing) => {
                    self.keep(thing, true);
                }
                None => self.check_or_leave("r0", None),
            }
        } else {
            self.named("destroy");
            self.emit(&format!("r1 = r10; r1 += -48; call kfunc[bpf_iter_{name}_destroy]"));
            self.iterator = None;
        }
    }

    fn new_iterator(&mut self) {
        let of = self.chance.below(ITERATORS.len());
        let (name, element, arguments, from) = ITERATORS[of];
        let given = match from {
            None => "",
            Some(thing) => {
                let holds = |at: &usize| self.objects[*at].is_some_and(|object| object.thing == thing);
                let Some(at) = (0..3).find(holds) else { return };
                register(at)
            }
        };
        let protected = element == Some(Thing::Task) || name == "css";
        if protected && !self.sections[0] && self.chance.percent(70) {
            self.section(0, "bpf_rcu_read_lock", "bpf_rcu_read_unlock");
        }
        self.named(&format!("iter.{name}"));
        self.emit(&format!(
            "r1 = r10; r1 += -48; {}; call kfunc[bpf_iter_{name}_new]",
            arguments.replace("{}", given)
        ));
        self.iterator = Some(of);
        if self.chance.percent(85) {
            self.iterate();
        }
    }

    fn dynptr(&mut self) {
        const SUBMIT: &str = "r1 = r10; r1 += -64; r2 = 0; call bpf_ringbuf_submit_dynptr";
        let Some(release) = self.dynptr else {
            let ways: &[(&str, &str, Option<&str>)] = &[
                (
                    "record",
                    "r1 = map[ring] ll; r2 = 16; r3 = 0; r4 = r10; r4 += -64; call bpf_ringbuf_reserve_dynptr",
                    Some(SUBMIT),
                ),
                ("over-value", "r2 = 16; r3 = 0; r4 = r10; r4 += -64; call bpf_dynptr_from_mem", None),
                ("over-skb", "r1 = r6; r2 = 0; r3 = r10; r3 += -64; call kfunc[bpf_dynptr_from_skb]", None),
                ("over-xdp", "r1 = r6; r2 = 0; r3 = r10; r3 += -64; call kfunc[bpf_dynptr_from_xdp]", None),
            ];
            let mut fits = vec![ways[0], ways[1]];
            match self.stage.section {
                "tc" => fits.extend([ways[2]; 2]),
                "xdp" => fits.extend([ways[3]; 2]),
                _ => {}
            }
            let Some((name, text, release)) = self.chance.one(&fits).copied() else { return };
            if name == "over-value" {
                self.emit("r1 = map[array] ll; r2 = r10; r2 += -8; call bpf_map_lookup_elem");
                self.check_or_leave("r0", None);
                self.emit("r1 = r0");
            }
            self.named(name);
            self.emit(text);
            self.dynptr = Some(release);
            if self.chance.percent(80) {
                self.dynptr();
            }
            return;
        };
        match self.chance.below(if release.is_some() { 10 } else { 9 }) {
            0..6 => {
                let kernel = !matches!(self.family(), Family::Plain);
                if kernel && self.chance.percent(50) {
                    self.named("slice");
                    self.emit("r1 = r10; r1 += -64; r2 = 0; r3 = 0; r4 = 8; call kfunc[bpf_dynptr_slice]");
                } else {
                    self.named("data");
                    self.emit("r1 = r10; r1 += -64; r2 = 0; r3 = 8; call bpf_dynptr_data");
                }
                self.keep(Thing::Slice, true);
            }
            6 => {
                self.named("write");
                self.emit(
                    "r1 = r10; r1 += -64; r2 = 0; r3 = r10; r3 += -80; r4 = 8; r5 = 0; call bpf_dynptr_write",
                );
            }
            7 => {
                self.named("read");
                self.emit(
                    "r1 = r10; r1 += -80; r2 = 8; r3 = r10; r3 += -64; r4 = 0; r5 = 0; call bpf_dynptr_read",
                );
            }
            8 => {
                self.named("overwrite");
                self.emit("*(u64 *)(r10 - 64) = 0");
            }
            _ => {
                self.named("submit");
                self.emit(SUBMIT);
                self.dynptr = None;
            }
        }
    }

    /// A call that moves the packet, or nothing.
    fn call(&mut self) {
        let calls: &[(&str, &str)] = match self.stage.section {
            "tc" => &[
                ("pull", "r1 = r6; r2 = 8; call bpf_skb_pull_data"),
                ("head", "r1 = r6; r2 = 8; r3 = 0; call bpf_skb_change_head"),
                ("hash", "r1 = r6; call bpf_get_hash_recalc"),
                ("random", "call bpf_get_prandom_u32"),
            ],
            "xdp" => &[
                ("adjust", "r1 = r6; r2 = 4; call bpf_xdp_adjust_head"),
                ("tail", "r1 = r6; r2 = -4; call bpf_xdp_adjust_tail"),
                ("random", "call bpf_get_prandom_u32"),
            ],
            _ if self.stage.section.contains(".s") || self.stage.section == "syscall" => &[
                ("sleep", "r1 = r10; r1 += -80; r2 = 8; r3 = 0; call bpf_copy_from_user"),
                ("random", "call bpf_get_prandom_u32"),
            ],
            _ => &[("random", "call bpf_get_prandom_u32")],
        };
        if let Some((name, text)) = self.chance.one(calls).copied() {
            self.named(name);
            self.emit(text);
        }
    }

    /// A call that calls a function of the program.
    fn callback(&mut self) -> Result<(), String> {
        let number = self.functions.len();
        let name = format!("cb{number}");
        let way = self.chance.below(4);
        let given = self.object().filter(|_| self.chance.percent(60));
        if let Some((at, _)) = given {
            self.emit(&format!("*(u64 *)(r10 - 88) = {}", register(at)));
        }
        // The register in which the callback finds its context.
        let context = ["r2", "r4", "r2", "r2"][way];
        let mut body = format!("r6 = {context}");
        let mut says = Vec::new();
        for _ in 0..1 + self.chance.below(2) {
            let (what, text) = self.inner(given, way)?;
            says.push(what);
            if !text.is_empty() {
                // Labels are local to this part.
                for line in self.labelled(&text) {
                    body.push_str("; ");
                    body.push_str(&line);
                }
            }
        }
        body.push_str("; r0 = 0; exit");
        let (helper, call) = match way {
            0 => {
                let rounds = if self.chance.percent(50) { 1 } else { 10 };
                (
                    "loop",
                    format!(
                        "r1 = {rounds}; r2 = func[{name}] ll; r3 = r10; r3 += -88; r4 = 0; call bpf_loop"
                    ),
                )
            }
            1 => (
                "each",
                format!(
                    "r1 = map[hash] ll; r2 = func[{name}] ll; r3 = r10; r3 += -88; r4 = 0; call bpf_for_each_map_elem"
                ),
            ),
            2 => (
                "drain",
                format!(
                    "r1 = map[user] ll; r2 = func[{name}] ll; r3 = r10; r3 += -88; r4 = 0; call bpf_user_ringbuf_drain"
                ),
            ),
            _ => {
                self.emit("r1 = map[timers] ll; r2 = r10; r2 += -8; call bpf_map_lookup_elem");
                self.check_or_leave("r0", None);
                ("timer", format!("r1 = r0; r2 = func[{name}] ll; call bpf_timer_set_callback"))
            }
        };
        self.names.push(format!("{helper}.{}", says.join(".")));
        self.emit(&call);
        self.function(None, &name, &body);
        Ok(())
    }

    fn function(&mut self, declared: Option<String>, name: &str, body: &str) {
        let lines: String = self.labelled(body).iter().map(|line| format!("  {line}\n")).collect();
        self.functions.push((declared, format!("{name}:\n{lines}")));
    }

    /// The body of a callback: a name, and its text, in which `r6` points to the slot with the caller's object.
    fn inner(&mut self, given: Option<(usize, Object)>, way: usize) -> Result<(String, String), String> {
        let said = |name: &str, text: &str| Ok((name.to_owned(), text.to_owned()));
        let object = given.filter(|_| way != 3);
        match self.chance.below(11) {
            0 => said("lock-unlock", "call kfunc[bpf_rcu_read_lock]; call kfunc[bpf_rcu_read_unlock]"),
            1 => said("lock", "call kfunc[bpf_rcu_read_lock]"),
            2 => said("unlock", "call kfunc[bpf_rcu_read_unlock]"),
            3 => said("preempt", "call kfunc[bpf_preempt_disable]; call kfunc[bpf_preempt_enable]"),
            4 if !self.references.is_empty() && object.is_some() => {
                let release = self.references[0].release;
                Ok(("release".to_owned(), format!("r1 = *(u64 *)(r6 + 0); call {release}")))
            }
            5 if matches!(self.family(), Family::Trace | Family::Hook | Family::Syscall) => said(
                "acquire",
                "r1 = 1; call kfunc[bpf_task_from_pid]; if r0 == 0 goto L; r1 = r0; call kfunc[bpf_task_release]; L:",
            ),
            6 if self.family() == Family::Trace => {
                let offset = self.offset("task_struct", "real_parent")?;
                Ok((
                    "walk".to_owned(),
                    format!(
                        "call bpf_get_current_task_btf; r7 = *(u64 *)(r0 + {offset}); r1 = r7; call bpf_task_pt_regs"
                    ),
                ))
            }
            7 | 8 => match object {
                Some((_, object)) => {
                    let Some(row) = self.use_of(object.thing) else { return said("nothing", "") };
                    let text = format!("r7 = *(u64 *)(r6 + 0); {}", row.text.replace("{}", "r7"));
                    Ok((row.name.to_owned(), text))
                }
                None => said("nothing", ""),
            },
            _ => said("random", "call bpf_get_prandom_u32"),
        }
    }

    /// A static function, which is walked at its call: it uses its argument, and returns an object that the argument
    /// leads to.
    fn static_function(&mut self) -> Result<(), String> {
        let Some((at, object)) = self.object() else { return Ok(()) };
        let name = format!("sub{}", self.functions.len());
        let mut body = String::from("r6 = r1");
        let mut returned = None;
        let fits: Vec<_> = FIELDS.iter().filter(|row| row.0 == object.thing).collect();
        match self.chance.below(3) {
            0 => {
                if let Some(row) = self.use_of(object.thing) {
                    body = format!("{body}; {}; r0 = 0", row.text.replace("{}", "r6"));
                } else {
                    body = format!("{body}; r0 = 0");
                }
            }
            1 if !fits.is_empty() => {
                let (_, of, member, thing) = self.chance.one(&fits).copied().ok_or("no field")?;
                let offset = self.offset(of, member)?;
                if self.chance.percent(40) {
                    body.push_str("; call kfunc[bpf_rcu_read_lock]");
                    body.push_str(&format!(
                        "; r7 = *(u64 *)(r6 + {offset}); call kfunc[bpf_rcu_read_unlock]; r0 = r7"
                    ));
                } else {
                    body.push_str(&format!("; r0 = *(u64 *)(r6 + {offset})"));
                }
                returned = Some(*thing);
            }
            _ if !self.references.is_empty() => {
                let reference = self.references.remove(0);
                self.emit(&format!("r1 = *(u64 *)(r10 - {})", reference.slot));
                body = format!("{body}; r1 = r6; call {}; r0 = 0", reference.release);
                self.named("sub.release");
                self.emit(&format!("call {name}"));
                self.function(None, &name, &format!("{body}; exit"));
                return Ok(());
            }
            _ => body.push_str("; r0 = 0"),
        }
        self.named(if returned.is_some() { "sub.walk" } else { "sub.use" });
        self.emit(&format!("r1 = {}; call {name}", register(at)));
        self.function(None, &name, &format!("{body}; exit"));
        if let Some(thing) = returned {
            self.keep(thing, true);
        }
        Ok(())
    }

    /// A global function, which is verified by its prototype.
    fn global_function(&mut self) {
        let name = format!("glob{}", self.functions.len());
        let of = match self.object() {
            Some((at, Object { thing: Thing::Task, .. })) if self.chance.percent(80) => Some(at),
            _ => None,
        };
        let Some(at) = of else {
            let (say, body) = match self.chance.below(4) {
                0 => ("random", "call bpf_get_prandom_u32; r0 = 0; exit"),
                1 => ("lock", "call kfunc[bpf_rcu_read_lock]; call kfunc[bpf_rcu_read_unlock]; r0 = 0; exit"),
                2 if self.stage.section == "tc" => ("pull", "r2 = 8; call bpf_skb_pull_data; r0 = 0; exit"),
                _ => ("nothing", "r0 = 0; exit"),
            };
            self.names.push(format!("glob.{say}"));
            let declared = if say == "pull" { "ctx" } else { "u64" };
            self.emit(&format!("r1 = {}; call {name}", if say == "pull" { "r6" } else { "0" }));
            return self.function(Some(format!("{name} global int({declared})")), &name, body);
        };
        let tags = if self.chance.percent(50) { "trusted" } else { "trusted nullable" };
        let body = match (self.use_of(Thing::Task), tags) {
            (Some(row), "trusted") => format!("r6 = r1; {}; r0 = 0; exit", row.text.replace("{}", "r6")),
            _ => "r0 = 0; exit".to_owned(),
        };
        self.named("glob.task");
        self.emit(&format!("r1 = {}; call {name}", register(at)));
        self.function(Some(format!("{name} global int({tags} struct task_struct *)")), &name, &body);
    }

    fn map(&mut self) {
        let Some(map) = self.chance.one(LOOKED_UP).copied() else { return };
        self.names.push(map.to_owned());
        match map {
            "bloom" | "queue" => {
                self.emit(&format!("r1 = map[{map}] ll; r2 = r10; r2 += -8"));
                self.emit("*(u64 *)(r10 - 248) = 0");
                self.emit(&format!("r1 = map[{map}] ll; r2 = r10; r2 += -256; call bpf_map_peek_elem"));
            }
            "events" if matches!(self.family(), Family::Trace | Family::Plain) => {
                self.emit("r1 = map[events] ll; r2 = 0; call bpf_perf_event_read");
            }
            "groups" => self.emit("r1 = map[groups] ll; r2 = 0; call bpf_current_task_under_cgroup"),
            "outer" => {
                self.emit("r1 = map[outer] ll; r2 = r10; r2 += -8; call bpf_map_lookup_elem");
                self.check_or_leave("r0", None);
                self.emit("r1 = r0; r2 = r10; r2 += -8; call bpf_map_lookup_elem");
                self.keep(Thing::Value, true);
            }
            "events" => {}
            _ => {
                self.emit(&format!("r1 = map[{map}] ll; r2 = r10; r2 += -8; call bpf_map_lookup_elem"));
                self.keep(Thing::Value, true);
            }
        }
    }

    /// A pointer stored in a map's value (kptr).
    fn kept(&mut self) {
        if !matches!(self.family(), Family::Trace | Family::Hook | Family::Syscall) {
            return;
        }
        self.emit("r1 = map[kept] ll; r2 = r10; r2 += -8; call bpf_map_lookup_elem");
        self.check_or_leave("r0", None);
        match self.chance.below(3) {
            0 => {
                self.named("kept");
                self.emit("r0 = *(u64 *)(r0 + 8)");
                self.keep(Thing::Task, true);
            }
            1 => {
                self.named("taken");
                self.emit("r1 = r0; r1 += 8; r2 = 0; call bpf_kptr_xchg");
                self.own(Thing::Task, "kfunc[bpf_task_release]");
            }
            _ => {
                let Some(at) = self
                    .references
                    .iter()
                    .position(|reference| reference.release == "kfunc[bpf_task_release]")
                else {
                    return;
                };
                let reference = self.references.remove(at);
                self.named("put");
                self.emit(&format!(
                    "r1 = r0; r1 += 8; r2 = *(u64 *)(r10 - {}); call bpf_kptr_xchg",
                    reference.slot
                ));
                self.own(Thing::Task, "kfunc[bpf_task_release]");
            }
        }
    }

    /// A critical section in which an object is read.
    fn lock(&mut self) -> Result<(), String> {
        if matches!(self.family(), Family::Plain) {
            return Ok(());
        }
        let slot = self.slots;
        self.slots += 8;
        self.emit("r1 = map[locks] ll; r2 = r10; r2 += -8; call bpf_map_lookup_elem");
        self.check_or_leave("r0", None);
        self.named("spin");
        self.emit(&format!("*(u64 *)(r10 - {slot}) = r0; r1 = r0; call bpf_spin_lock"));
        if let Some((at, object)) = self.object()
            && let Some((_, of, member, thing)) = FIELDS.iter().find(|row| row.0 == object.thing)
        {
            let offset = self.offset(of, member)?;
            self.emit(&format!("{} = *(u64 *)({} + {offset})", register(at), register(at)));
            self.objects[at] = Some(Object { thing: *thing, unchecked: false });
        }
        self.emit(&format!("r1 = *(u64 *)(r10 - {slot}); call bpf_spin_unlock"));
        Ok(())
    }

    fn current(&mut self) {
        if matches!(self.family(), Family::Packet) {
            return;
        }
        self.named("current");
        self.emit("call bpf_get_current_task_btf");
        self.keep(Thing::Task, false);
    }

    fn packet(&mut self) {
        let (data, end) = match self.stage.section {
            "tc" => (76, 80),
            "xdp" => (0, 4),
            _ => return,
        };
        self.named("packet");
        let at = self.chance.below(3);
        let reg = register(at);
        self.emit(&format!(
            "{reg} = *(u32 *)(r6 + {data}); r1 = *(u32 *)(r6 + {end}); r2 = {reg}; r2 += 8; r0 = 0"
        ));
        self.labels += 1;
        let label = format!("in{}", self.labels);
        self.lines.push(format!("if r2 <= r1 goto {label}"));
        let lines = self.cleanup(None);
        self.lines.extend(lines);
        self.emit("r0 = 0; exit");
        self.lines.push(format!("{label}:"));
        self.objects[at] = Some(Object { thing: Thing::Packet, unchecked: false });
    }

    fn tail_call(&mut self) {
        self.named("tail");
        self.emit("r1 = r6; r2 = map[progs] ll; r3 = 0; call bpf_tail_call");
    }
}
