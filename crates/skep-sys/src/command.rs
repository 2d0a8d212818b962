//! The commands of the system call.

macro_rules! commands {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// A command, by its number in Linux's `enum bpf_cmd`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "bpf(2) says what each does")]
        pub enum Command {
            $($name = $number,)*
        }

        impl Command {
            /// All commands of Linux 6.12.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The command of that number.
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name in Linux's header.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

commands! {
    MapCreate = 0, "BPF_MAP_CREATE";
    MapLookupElem = 1, "BPF_MAP_LOOKUP_ELEM";
    MapUpdateElem = 2, "BPF_MAP_UPDATE_ELEM";
    MapDeleteElem = 3, "BPF_MAP_DELETE_ELEM";
    MapGetNextKey = 4, "BPF_MAP_GET_NEXT_KEY";
    ProgLoad = 5, "BPF_PROG_LOAD";
    ObjPin = 6, "BPF_OBJ_PIN";
    ObjGet = 7, "BPF_OBJ_GET";
    ProgAttach = 8, "BPF_PROG_ATTACH";
    ProgDetach = 9, "BPF_PROG_DETACH";
    ProgTestRun = 10, "BPF_PROG_TEST_RUN";
    ProgGetNextId = 11, "BPF_PROG_GET_NEXT_ID";
    MapGetNextId = 12, "BPF_MAP_GET_NEXT_ID";
    ProgGetFdById = 13, "BPF_PROG_GET_FD_BY_ID";
    MapGetFdById = 14, "BPF_MAP_GET_FD_BY_ID";
    ObjGetInfoByFd = 15, "BPF_OBJ_GET_INFO_BY_FD";
    ProgQuery = 16, "BPF_PROG_QUERY";
    RawTracepointOpen = 17, "BPF_RAW_TRACEPOINT_OPEN";
    BtfLoad = 18, "BPF_BTF_LOAD";
    BtfGetFdById = 19, "BPF_BTF_GET_FD_BY_ID";
    TaskFdQuery = 20, "BPF_TASK_FD_QUERY";
    MapLookupAndDeleteElem = 21, "BPF_MAP_LOOKUP_AND_DELETE_ELEM";
    MapFreeze = 22, "BPF_MAP_FREEZE";
    BtfGetNextId = 23, "BPF_BTF_GET_NEXT_ID";
    MapLookupBatch = 24, "BPF_MAP_LOOKUP_BATCH";
    MapLookupAndDeleteBatch = 25, "BPF_MAP_LOOKUP_AND_DELETE_BATCH";
    MapUpdateBatch = 26, "BPF_MAP_UPDATE_BATCH";
    MapDeleteBatch = 27, "BPF_MAP_DELETE_BATCH";
    LinkCreate = 28, "BPF_LINK_CREATE";
    LinkUpdate = 29, "BPF_LINK_UPDATE";
    LinkGetFdById = 30, "BPF_LINK_GET_FD_BY_ID";
    LinkGetNextId = 31, "BPF_LINK_GET_NEXT_ID";
    EnableStats = 32, "BPF_ENABLE_STATS";
    IterCreate = 33, "BPF_ITER_CREATE";
    LinkDetach = 34, "BPF_LINK_DETACH";
    ProgBindMap = 35, "BPF_PROG_BIND_MAP";
    TokenCreate = 36, "BPF_TOKEN_CREATE";
}
