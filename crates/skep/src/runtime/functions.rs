//! A host's own functions and program types, as settings of a runtime.

use super::RuntimeBuilder;
use crate::error::Error;
use crate::function::{self, HostFunction, Prototypes};
use crate::helpers;
use crate::host;
use crate::shared::Helper;
use skep_abi::ProgramType;

impl RuntimeBuilder {
    /// Adds a helper; a number that is taken is an error of [`build`](Self::build).
    pub(super) fn add(&mut self, helper: Helper) {
        let id = helper.proto.id;
        if let Some(taken) = self.helpers.get(&id) {
            let taken = taken.proto.name.clone().into_owned();
            self.taken.get_or_insert(Error::HelperTaken { id, taken });
        } else {
            self.helpers.insert(id, helper);
        }
    }

    /// Adds a Rust function as a helper with this number and name. Programs of every type can call it. Its prototype is
    /// that of the function: see [`HostFunction`] for the types that it may take and return.
    ///
    /// ```
    /// use skep::{Object, Runtime, function::Caller};
    ///
    /// /// How many bytes of a buffer are this one.
    /// fn count(caller: Caller<'_>, bytes: &[u8], wanted: u8) -> u32 {
    ///     assert_eq!(caller.program(), "counting");
    ///     bytes.iter().filter(|byte| **byte == wanted).count() as u32
    /// }
    ///
    /// let runtime = Runtime::builder().function(1000, "count", count).build()?;
    /// let insns = skep::isa::assemble(
    ///     "r3 = 7              // r1 and r2 are the buffer and its length already
    ///      call count#1000
    ///      exit",
    /// )
    /// .expect("the text is right");
    /// let object = Object::from_insns("counting", &skep::abi::RAW, insns);
    /// let module = runtime.linker(&object).buffer_len(4).load()?;
    /// assert_eq!(module.programs()[0].run_raw(&mut [7, 1, 7, 7])?, 3);
    /// # Ok::<(), skep::Error>(())
    /// ```
    #[must_use]
    pub fn function<F: HostFunction<S>, S>(mut self, id: u32, name: &str, function: F) -> Self {
        self.add(function::helper(id, name.to_owned(), function));
        self
    }

    /// [`RuntimeBuilder::function`] for programs of these types alone: the methods of a context, for example. Other
    /// programs that call it are refused.
    ///
    /// ```
    /// use skep::abi::{RAW, XDP};
    /// use skep::function::PacketView;
    ///
    /// let length = |packet: PacketView<'_>| -> u32 { packet.len() as u32 };
    /// let runtime = skep::Runtime::builder().function_for(&[&XDP], 1000, "length", length).build()?;
    /// # let insns = skep::isa::assemble("call length#1000\nexit").expect("the text is right");
    /// # runtime.load(&skep::Object::from_insns("one", &XDP, insns.clone()))?;
    /// # assert!(runtime.linker(&skep::Object::from_insns("two", &RAW, insns)).buffer_len(4).load().is_err());
    /// # Ok::<(), skep::Error>(())
    /// ```
    #[must_use]
    pub fn function_for<F: HostFunction<S>, S>(
        mut self,
        types: &[&'static ProgramType],
        id: u32,
        name: &str,
        function: F,
    ) -> Self {
        let mut helper = function::helper(id, name.to_owned(), function);
        helper.proto.only_for = Some(types.iter().map(|kind| kind.name).collect());
        self.add(helper);
        self
    }

    /// Adds a function whose prototype is data, for hosts in other languages. [`RuntimeBuilder::function`] makes the
    /// prototype from the function.
    ///
    /// ```
    /// use skep::function::{Given, Parameter, Prototype, Returns};
    /// use skep::{Object, Runtime};
    ///
    /// let bytes = Parameter::Bytes { writable: true, nullable: false };
    /// let prototype = Prototype::new(&[bytes], Returns::OrErrno)?;
    /// let runtime = Runtime::builder()
    ///     .dynamic_function(1000, "reverse", &prototype, |_, given| match given {
    ///         [Given::Bytes(Some(bytes))] => {
    ///             bytes.reverse();
    ///             -95
    ///         }
    ///         _ => 0,
    ///     })
    ///     .build()?;
    /// let insns = skep::isa::assemble("call reverse#1000\nexit").expect("the text is right");
    /// let object = Object::from_insns("reversing", &skep::abi::RAW, insns);
    /// let module = runtime.linker(&object).buffer_len(4).load()?;
    /// let mut buffer = [1, 2, 3, 4];
    /// assert_eq!(module.programs()[0].run_raw(&mut buffer)? as i64, -95);
    /// assert_eq!(buffer, [4, 3, 2, 1]);
    /// # Ok::<(), skep::Error>(())
    /// ```
    ///
    /// [`RuntimeBuilder::build`] reports a prototype with [`Parameter::Host`](function::Parameter::Host).
    #[must_use]
    pub fn dynamic_function(
        mut self,
        id: u32,
        name: &str,
        prototype: &function::Prototype,
        call: impl Fn(&function::Invocation<'_>, &mut [function::Given<'_>]) -> i64 + Send + Sync + 'static,
    ) -> Self {
        if prototype.is_method() {
            let why = "it takes the context of a type: add it by dynamic_method".to_owned();
            self.taken.get_or_insert(Error::Prototype { name: name.to_owned(), why });
        }
        self.add(function::dynamic(id, name.to_owned(), prototype, Box::new(call)));
        self
    }

    /// Adds a function whose prototype is data for programs of one type of the host's own, which call it by its name
    /// ([`RuntimeBuilder::method`]).
    ///
    /// [`RuntimeBuilder::build`] reports a prototype that does not begin with
    /// [`Parameter::Host`](function::Parameter::Host).
    #[must_use]
    pub fn dynamic_method(
        mut self,
        host: &'static host::HostType,
        name: &str,
        prototype: &function::Prototype,
        call: impl Fn(&function::Invocation<'_>, &mut [function::Given<'_>]) -> i64 + Send + Sync + 'static,
    ) -> Self {
        self = self.add_type(Ok(host));
        if !prototype.is_method() {
            let why = "its first argument is not the context of the type".to_owned();
            self.taken.get_or_insert(Error::Prototype { name: name.to_owned(), why });
        }
        let id = self.hosts.next_method();
        self.add_method(host, name, function::dynamic(id, name.to_owned(), prototype, Box::new(call)))
    }

    /// Adds a function that programs of that type call by its name.
    fn add_method(mut self, host: &'static host::HostType, name: &str, mut helper: Helper) -> Self {
        if let Some(taken) = self.hosts.methods.get(name) {
            self.taken.get_or_insert(Error::HelperTaken { id: *taken, taken: name.to_owned() });
            return self;
        }
        helper.proto.only = Some(host.program_type());
        self.hosts.methods.insert(name.to_owned(), helper.proto.id);
        self.add(helper);
        self
    }

    /// Adds functions that are declared but not here, to load and run programs of another host. Each returns 0, or what
    /// `results` says for its name, and fills what it should fill with zeroes; it calls nothing back.
    ///
    /// # Errors
    ///
    /// [`Error::Prototype`] if a result is for no declared function, or is none that its type allows.
    pub fn declare(mut self, prototypes: &Prototypes, results: &[(String, i64)]) -> Result<Self, Error> {
        let wrong = |name: &str, why: String| Err(Error::Prototype { name: name.to_owned(), why });
        if let Some((name, _)) =
            results.iter().find(|(name, _)| prototypes.iter().all(|proto| proto.name != *name))
        {
            let known: Vec<_> = prototypes.iter().map(|proto| &*proto.name).collect();
            return wrong(name, format!("it is not declared; there are: {}", known.join(", ")));
        }
        for proto in prototypes.iter() {
            let given = results.iter().find(|(name, _)| proto.name == *name);
            let result = given.map_or(0, |(_, result)| *result);
            match function::stub(proto, result) {
                Some(stub) => self.add(stub),
                None => return wrong(&proto.name, format!("its type does not allow the result {result}")),
            }
        }
        Ok(self)
    }

    /// Lets programs over a context of the host's own be loaded: those in its section. See [`host`](crate::host).
    ///
    /// An error of the description is reported by [`RuntimeBuilder::build`].
    #[must_use]
    pub fn context<C: host::HostContext>(self) -> Self {
        let made = host::HostType::of::<C>();
        self.add_type(made)
    }

    /// The same for a type that was described as data ([`HostType::new`](crate::HostType::new)).
    #[must_use]
    pub fn host_type(self, host: &'static host::HostType) -> Self {
        self.add_type(Ok(host))
    }

    fn add_type(mut self, made: Result<&'static host::HostType, Error>) -> Self {
        let host = match made {
            Ok(host) => host,
            Err(error) => {
                self.taken.get_or_insert(error);
                return self;
            }
        };
        match self.hosts.of_section(host.section()) {
            None => self.hosts.types.push(host),
            Some(other) if std::ptr::eq(other, host) => {}
            Some(other) => {
                let why = format!(
                    "struct {} has the section {:?} already; take another",
                    other.description().name(),
                    host.section()
                );
                let name = host.description().name().to_owned();
                self.taken.get_or_insert(Error::HostType { name, why });
            }
        }
        self
    }

    /// Adds a Rust function for programs over the context `C` alone. They declare it by its name, as a kernel function
    /// (`__ksym`), and pass their context first; the function gets [`HostContext::Host`](crate::HostContext::Host),
    /// the part that programs do not see. [`Runtime::context_header`](crate::Runtime::context_header) has its
    /// declaration.
    ///
    /// The result is as that of [`RuntimeBuilder::function`]. The other arguments are numbers, memory, maps and
    /// [`Caller`](function::Caller).
    #[must_use]
    pub fn method<C, F, S>(mut self, name: &str, function: F) -> Self
    where
        C: host::HostContext,
        F: HostFunction<S>,
        S: function::Method<C::Host>,
    {
        self = self.context::<C>();
        let Ok(host) = host::HostType::of::<C>() else { return self };
        let id = self.hosts.next_method();
        self.add_method(host, name, function::helper(id, name.to_owned(), function))
    }

    /// Replaces all helpers by those of the public `bpf_conformance` suite, numbers 0 to 5.
    #[must_use]
    pub fn conformance_helpers(mut self) -> Self {
        self.helpers = skep_abi::CONFORMANCE
            .iter()
            .zip(helpers::conformance::HELPERS)
            .map(|(proto, call)| (proto.id, Helper::provided(proto, call)))
            .collect();
        self.linux_numbers = false;
        self
    }
}
