// SPDX-License-Identifier: MIT OR Apache-2.0

// Attaches the programs of port.bpf.o to port1, sends frames out of port0, and prints what the programs report.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/perf"
	"github.com/cilium/ebpf/ringbuf"
)

// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES: the frames of a test run go where the program sends them.
const liveFrames = 2

type count struct{ Arrived, Passed uint64 }

type record struct {
	Length   uint32
	Protocol uint16
	Refused  uint16
}

// xdpMd is struct xdp_md, of which a test run reads the size of the frame and the device.
type xdpMd struct{ Data, DataEnd, DataMeta, Ingress, Queue, Egress uint32 }

type objects struct {
	Arrive  *ebpf.Program `ebpf:"arrive"`
	Pass    *ebpf.Program `ebpf:"pass"`
	Send    *ebpf.Program `ebpf:"send"`
	Counts  *ebpf.Map     `ebpf:"counts"`
	Records *ebpf.Map     `ebpf:"records"`
	Samples *ebpf.Map     `ebpf:"samples"`
}

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(object string) error {
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return err
	}
	if err := spec.Variables["refused"].Set(uint16(0x0806)); err != nil {
		return err
	}
	var loaded objects
	if err := spec.LoadAndAssign(&loaded, nil); err != nil {
		return err
	}

	inside, err := net.InterfaceByName("port1")
	if err != nil {
		return err
	}
	outside, err := net.InterfaceByName("port0")
	if err != nil {
		return err
	}
	xdp, err := link.AttachXDP(link.XDPOptions{Program: loaded.Arrive, Interface: inside.Index})
	if err != nil {
		return fmt.Errorf("attach XDP: %w", err)
	}
	defer xdp.Close()
	tcx, err := link.AttachTCX(link.TCXOptions{
		Program: loaded.Pass, Interface: inside.Index, Attach: ebpf.AttachTCXIngress,
	})
	if err != nil {
		return fmt.Errorf("attach tcx: %w", err)
	}
	defer tcx.Close()
	if info, err := xdp.Info(); err != nil || info.XDP().Ifindex != uint32(inside.Index) {
		return fmt.Errorf("the link is not on port1: %v %w", info, err)
	}

	records, err := ringbuf.NewReader(loaded.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	samples, err := perf.NewReader(loaded.Samples, 4096)
	if err != nil {
		return err
	}
	defer samples.Close()

	for _, sent := range []record{{Protocol: 0x0800, Length: 60}, {Protocol: 0x0806, Length: 42}, {Protocol: 0x86dd, Length: 100}} {
		frame := make([]byte, sent.Length)
		binary.BigEndian.PutUint16(frame[12:], sent.Protocol)
		context := xdpMd{DataEnd: sent.Length, Ingress: uint32(outside.Index)}
		_, err := loaded.Send.Run(&ebpf.RunOptions{Data: frame, Context: context, Repeat: 1, Flags: liveFrames})
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}

	deadline := time.Now().Add(5 * time.Second)
	records.SetDeadline(deadline)
	samples.SetDeadline(deadline)
	for range 3 {
		raw, err := records.Read()
		if err != nil {
			return fmt.Errorf("ring buffer: %w", err)
		}
		if err := report("xdp", raw.RawSample); err != nil {
			return err
		}
	}
	for range 2 {
		raw, err := samples.Read()
		if err != nil {
			return fmt.Errorf("perf: %w", err)
		}
		if err := report("tc", raw.RawSample); err != nil {
			return err
		}
	}
	var (
		lines    []string
		protocol uint16
		counted  count
	)
	elements := loaded.Counts.Iterate()
	for elements.Next(&protocol, &counted) {
		lines = append(lines, fmt.Sprintf("%04x: %d arrived, %d passed", protocol, counted.Arrived, counted.Passed))
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
	return elements.Err()
}

// report prints a record.
func report(place string, raw []byte) error {
	var got record
	if err := binary.Read(bytes.NewReader(raw), binary.NativeEndian, &got); err != nil {
		return err
	}
	line := fmt.Sprintf("%s: %d bytes of %04x", place, got.Length, got.Protocol)
	if got.Refused != 0 {
		line += ", refused"
	}
	fmt.Println(line)
	return nil
}
