/* Types of a host that does not exist: what the tests of objects and of the host's own functions need, with the names
 * and prototypes that Linux gives them. `host.btf` is made of it; see the rule in README.md. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef _Bool bool;

#define __rcu __attribute__((btf_type_tag("rcu")))
#define __user __attribute__((btf_type_tag("user")))
#define __percpu __attribute__((btf_type_tag("percpu")))
#define __kfunc __attribute__((btf_decl_tag("bpf_kfunc"), used))
#define per_cpu(name) name __attribute__((section(".data..percpu"), used))

struct list_head {
	struct list_head *next, *prev;
};

struct cpumask {
	unsigned long bits[2];
};

struct bpf_cpumask {
	struct cpumask cpumask;
	int usage;
};

struct mm_struct {
	u64 start_stack;
	struct file *exe_file;
};

struct cred {
	u32 uid;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct cgroup_subsys_state {
	int id;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	int level;
	struct cgroup *parent;
};

/* Offsets matter to the tests: pid 0, comm 8, flags 24 (bits), parent 32, ... */
struct task_struct {
	int pid;                                /* 0 */
	u32 on_cpu;                             /* 4 */
	char comm[16];                          /* 8 */
	u32 in_execve : 1, in_iowait : 3;       /* 24 */
	struct task_struct *parent;             /* 32 */
	struct task_struct *real_parent;        /* 40 */
	struct mm_struct *mm;                   /* 48 */
	struct cred __rcu *cred;                /* 56 */
	const struct cpumask *cpus_ptr;         /* 64 */
	struct css_set *cgroups;                /* 72 */
	void *stack;                            /* 80 */
	int __user *set_child_tid;              /* 88 */
	struct list_head tasks;                 /* 96 */
	u64 __percpu *counters;                 /* 112 */
	struct cred __percpu *creds;            /* 120 */
	union {
		u64 whole;
		u32 halves[2];
		struct list_head *list;
	} any;                                  /* 128 */
	void (*restart)(struct task_struct *);  /* 136 */
	struct cred __user *user_cred;          /* 144 */
};

struct inode {
	u16 i_mode;
	u64 i_ino;
};

struct dentry {
	struct inode *d_inode;
};

struct path {
	void *mnt;
	struct dentry *dentry;
};

struct file {
	u32 f_flags;
	struct inode *f_inode;
	struct path f_path;
};

struct sock_common {
	u16 skc_family;
	u32 skc_hash;
};

struct sock {
	struct sock_common __sk_common;
	u32 sk_mark;
	struct socket *sk_socket;
};

struct socket {
	short type;
	struct sock *sk;
};

struct tcp_sock {
	struct sock sk;
	u32 snd_cwnd;
};

struct udp6_sock {
	struct sock sk;
};

struct request_sock {
	struct sock *sk;
};

struct sk_buff {
	u32 len;
	struct sock *sk;
	void *dev;
};

struct xdp_buff {
	void *data;
	u32 frame_sz;
};

struct __sk_buff {
	u32 len;
};

struct xdp_md {
	u32 data;
};

struct nf_hook_state {
	u8 hook;
	struct sock *sk;
};

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
};

struct pt_regs {
	unsigned long r15, r14;
};

struct seq_file {
	char *buf;
	u64 size;
};

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
};

struct bpf_map {
	u32 id;
};

struct bpf_dynptr {
	u64 __opaque[2];
};

struct bpf_iter_num {
	u64 __opaque[1];
};

struct bpf_iter_task {
	u64 __opaque[3];
};

struct bpf_iter_css_task {
	u64 __opaque[1];
};

struct vm_area_struct {
	u64 vm_start;
};

struct bpf_iter_task_vma {
	u64 __opaque[1];
};

struct bpf_sock_tuple {
	u32 saddr, daddr;
	u16 sport, dport;
};

struct bpf_ct_opts {
	s32 netns_id;
	s32 error;
	u8 l4proto;
	u8 dir;
	u8 reserved[2];
};

struct nf_conn {
	u64 status;
};

struct nf_conn___init {
	struct nf_conn ct;
};

struct pair {
	u64 first, second;
};

struct rq {
	u32 nr_running;
};

enum color { RED, GREEN };

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack);
	u32 flags;
};

struct bpf_struct_ops_tcp_congestion_ops {
	struct tcp_congestion_ops data;
};

/* What programs are attached to. */
#define FUNC(...) __VA_ARGS__ __attribute__((used, noinline))
FUNC(long) vfs_read(struct file *file, char __user *buf, u64 count, long *pos) { return (long)file; }
/* Programs that sleep are attached to system calls. */
FUNC(long) __x64_sys_read(struct file *file, char __user *buf, u64 count, long *pos) { return (long)file; }
FUNC(void) void_function(struct task_struct *task, bool yes, enum color color) {}
FUNC(struct file *) open_file(const char *name) { return 0; }
FUNC(int) many(struct pair pair, int after, struct cred **where) { return 0; }
FUNC(int) bpf_lsm_file_open(struct file *file) { return 0; }
FUNC(void) bpf_lsm_task_free(struct task_struct *task) {}
FUNC(int) bpf_lsm_inode_xattr_skipcap(const char *name) { return 0; }
FUNC(int) security_file_open(struct file *file) { return 0; }
FUNC(int) bpf_iter_task(struct bpf_iter_meta *meta, struct task_struct *task) { return 0; }
FUNC(int) bpf_iter_bpf_map_elem(struct bpf_iter_meta *meta, struct bpf_map *map, void *key, void *value) { return 0; }
FUNC(int) tcp_sendmsg(struct sock *sk, struct socket *socket) { return 0; }
FUNC(u32) tcp_congestion_ops__ssthresh(struct sock *sk__nullable) { return 0; }
FUNC(void) net_rx(struct sk_buff *skb) {}
typedef void (*btf_trace_sched_switch)(void *, bool preempt, struct task_struct *prev, struct task_struct *next);
typedef void (*btf_trace_netif_rx)(void *, struct sk_buff *skb);
btf_trace_sched_switch trace_sched_switch;
btf_trace_netif_rx trace_netif_rx;

struct rq per_cpu(runqueues);
int per_cpu(counter);
u64 jiffies __attribute__((used));
struct task_struct init_task __attribute__((used));
struct tcp_congestion_ops operations __attribute__((used));
struct bpf_struct_ops_tcp_congestion_ops registered __attribute__((used));
struct all {
	struct bpf_nf_ctx nf;
	struct pt_regs regs;
	struct xdp_buff xdp;
	struct tcp_sock tcp;
	struct udp6_sock udp6;
	struct request_sock request;
	struct bpf_cpumask mask;
	struct mm_struct mm;
	struct css_set css;
	struct cred cred;
	struct cgroup cgroup;
	struct nf_hook_state state;
	struct inode inode;
	struct dentry dentry;
	struct seq_file seq;
	struct bpf_iter_meta meta;
	struct socket socket;
	struct nf_conn___init conn;
	struct file file;
	struct bpf_iter_css_task it;
	struct bpf_ct_opts opts;
	struct bpf_sock_tuple tuple;
	struct xdp_md md;
	struct __sk_buff skb;
} all __attribute__((used));

/* Functions that programs may call. */
#define KFUNC(type, name, ...) __kfunc type name(__VA_ARGS__)
KFUNC(void, bpf_rcu_read_lock, void) {}
KFUNC(void, bpf_rcu_read_unlock, void) {}
KFUNC(void, bpf_preempt_disable, void) {}
KFUNC(void, bpf_preempt_enable, void) {}
KFUNC(struct task_struct *, bpf_task_acquire, struct task_struct *p) { return p; }
KFUNC(void, bpf_task_release, struct task_struct *p) {}
KFUNC(struct task_struct *, bpf_task_from_pid, s32 pid) { return 0; }
KFUNC(struct cgroup *, bpf_cgroup_from_id, u64 id) { return 0; }
KFUNC(void, bpf_cgroup_release, struct cgroup *cgrp) {}
KFUNC(long, bpf_task_under_cgroup, struct task_struct *task, struct cgroup *ancestor) { return 0; }
KFUNC(struct bpf_cpumask *, bpf_cpumask_create, void) { return 0; }
KFUNC(struct bpf_cpumask *, bpf_cpumask_acquire, struct bpf_cpumask *cpumask) { return cpumask; }
KFUNC(void, bpf_cpumask_release, struct bpf_cpumask *cpumask) {}
KFUNC(bool, bpf_cpumask_test_cpu, u32 cpu, const struct cpumask *cpumask) { return 0; }
KFUNC(void, bpf_cpumask_set_cpu, u32 cpu, struct bpf_cpumask *cpumask) {}
KFUNC(int, bpf_iter_num_new, struct bpf_iter_num *it, int start, int end) { return 0; }
KFUNC(int *, bpf_iter_num_next, struct bpf_iter_num *it) { return 0; }
KFUNC(void, bpf_iter_num_destroy, struct bpf_iter_num *it) {}
KFUNC(int, bpf_iter_task_new, struct bpf_iter_task *it, struct task_struct *task__nullable, u32 flags) { return 0; }
KFUNC(struct task_struct *, bpf_iter_task_next, struct bpf_iter_task *it) { return 0; }
KFUNC(void, bpf_iter_task_destroy, struct bpf_iter_task *it) {}
KFUNC(int, bpf_iter_task_vma_new, struct bpf_iter_task_vma *it, struct task_struct *task, u64 addr) { return 0; }
KFUNC(struct vm_area_struct *, bpf_iter_task_vma_next, struct bpf_iter_task_vma *it) { return 0; }
KFUNC(void, bpf_iter_task_vma_destroy, struct bpf_iter_task_vma *it) {}
KFUNC(int, bpf_iter_css_task_new, struct bpf_iter_css_task *it, struct cgroup_subsys_state *css, u32 flags) { return 0; }
KFUNC(int, bpf_dynptr_from_skb, struct __sk_buff *s, u64 flags, struct bpf_dynptr *ptr__uninit) { return 0; }
KFUNC(int, bpf_dynptr_from_xdp, struct xdp_md *x, u64 flags, struct bpf_dynptr *ptr__uninit) { return 0; }
KFUNC(void *, bpf_dynptr_slice, const struct bpf_dynptr *p, u32 offset, void *buffer__opt, u32 buffer__szk) { return 0; }
KFUNC(void *, bpf_dynptr_slice_rdwr, const struct bpf_dynptr *p, u32 offset, void *buffer__opt, u32 buffer__szk) { return 0; }
KFUNC(int, bpf_dynptr_adjust, const struct bpf_dynptr *p, u32 start, u32 end) { return 0; }
KFUNC(int, bpf_dynptr_clone, const struct bpf_dynptr *p, struct bpf_dynptr *clone__uninit) { return 0; }
KFUNC(u32, bpf_dynptr_size, const struct bpf_dynptr *p) { return 0; }
KFUNC(void *, bpf_cast_to_kern_ctx, void *obj) { return 0; }
KFUNC(void *, bpf_rdonly_cast, const void *obj__ign, u32 btf_id__k) { return 0; }
KFUNC(void *, bpf_obj_new_impl, u64 local_type_id__k, void *meta__ign) { return 0; }
KFUNC(void, bpf_throw, u64 cookie) {}
KFUNC(struct nf_conn *, bpf_xdp_ct_lookup, struct xdp_md *xdp_ctx, struct bpf_sock_tuple *bpf_tuple, u32 tuple__sz,
      struct bpf_ct_opts *opts, u32 opts__sz) { return 0; }
KFUNC(struct nf_conn___init *, bpf_xdp_ct_alloc, struct xdp_md *xdp_ctx, struct bpf_sock_tuple *bpf_tuple, u32 tuple__sz,
      struct bpf_ct_opts *opts, u32 opts__sz) { return 0; }
KFUNC(struct nf_conn *, bpf_ct_insert_entry, struct nf_conn___init *nfct_i) { return 0; }
KFUNC(void, bpf_ct_release, struct nf_conn *nfct) {}
KFUNC(int, bpf_xdp_metadata_rx_hash, const struct xdp_md *ctx, u32 *hash, enum color *rss_type) { return 0; }
KFUNC(int, bpf_copy_from_user_str, void *dst, u32 dst__sz, const void *unsafe_ptr__ign, u64 flags) { return 0; }
KFUNC(struct file *, bpf_get_task_exe_file, struct task_struct *task) { return 0; }
KFUNC(void, bpf_put_file, struct file *file) {}
KFUNC(int, bpf_path_d_path, const struct path *path, char *buf, u64 buf__sz) { return 0; }
KFUNC(int, bpf_get_file_xattr, struct file *file, const char *name__str, struct bpf_dynptr *value_p) { return 0; }
KFUNC(int, bpf_sock_destroy, struct sock_common *sock) { return 0; }
KFUNC(int, some_other_function, int a) { return 0; }
