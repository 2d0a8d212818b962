/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the tracing programs name of the kernel's types: each structure with the few members that they use. Where they
 * lie is found out when the program is linked with the kernel's BTF.
 */
#ifndef SKEP_VERDICTS_KERNEL_H
#define SKEP_VERDICTS_KERNEL_H

#include "verdicts.h"

#include <bpf/bpf_core_read.h>

#define RELOCATED __attribute__((preserve_access_index))
#define KFUNC extern __ksym __weak

struct mm_struct;

struct qstr {
	const unsigned char *name;
} RELOCATED;

struct super_block {
	unsigned int s_dev;
	unsigned long s_magic;
} RELOCATED;

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	long long i_size;
	struct super_block *i_sb;
} RELOCATED;

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
} RELOCATED;

struct path {
	struct dentry *dentry;
} RELOCATED;

struct file {
	unsigned int f_flags;
	unsigned int f_mode;
	struct inode *f_inode;
	struct path f_path;
	long long f_pos;
} RELOCATED;

struct upid {
	int nr;
} RELOCATED;

struct nsproxy {
	struct net *net_ns;
} RELOCATED;

struct cred {
	struct {
		unsigned int val;
	} uid;
} RELOCATED;

struct task_struct {
	int pid;
	int tgid;
	unsigned int flags;
	int prio;
	char comm[16];
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct nsproxy *nsproxy;
	const struct cred *cred;
	unsigned int __state;
	long long start_time;
} RELOCATED;

struct bpf_iter_meta {
	struct seq_file *seq;
	unsigned long long session_id;
	unsigned long long seq_num;
} RELOCATED;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} RELOCATED;

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
} RELOCATED;

/* An argument of a program that is given an array of them. */
#define ARG(type, index) ((type)ctx[index])

#endif
