// Reads frames with indigo's packages, as consumers written in Go do: one per line on standard input, in hexadecimal;
// for each a line on standard output, empty if it was read, else the error.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/bluesky-social/indigo/events"
)

func read(message []byte) error {
	reader := bytes.NewReader(message)
	var header events.EventHeader
	if err := header.UnmarshalCBOR(reader); err != nil {
		return fmt.Errorf("stream ends: %w", err)
	}
	switch header.MsgType {
	case "#commit":
		var event comatproto.SyncSubscribeRepos_Commit
		if err := event.UnmarshalCBOR(reader); err != nil {
			return fmt.Errorf("stream ends: %w", err)
		}
		return readCommit(&event)
	case "#sync":
		var event comatproto.SyncSubscribeRepos_Sync
		if err := event.UnmarshalCBOR(reader); err != nil {
			return fmt.Errorf("stream ends: %w", err)
		}
		_, _, err := repo.LoadCommitFromCAR(context.Background(), bytes.NewReader(event.Blocks))
		return err
	case "#identity":
		var event comatproto.SyncSubscribeRepos_Identity
		if err := event.UnmarshalCBOR(reader); err != nil {
			return fmt.Errorf("stream ends: %w", err)
		}
	case "#account":
		var event comatproto.SyncSubscribeRepos_Account
		if err := event.UnmarshalCBOR(reader); err != nil {
			return fmt.Errorf("stream ends: %w", err)
		}
	}
	return nil
}

func readCommit(event *comatproto.SyncSubscribeRepos_Commit) error {
	ctx := context.Background()
	tree, err := repo.VerifyCommitMessage(ctx, event)
	if err != nil {
		return err
	}
	for _, op := range event.Ops {
		if op.Cid == nil {
			continue
		}
		collection, key, _ := strings.Cut(op.Path, "/")
		record, _, err := tree.GetRecordBytes(ctx, syntax.NSID(collection), syntax.RecordKey(key))
		if err != nil {
			return err
		}
		if _, err := atdata.UnmarshalCBOR(record); err != nil {
			return fmt.Errorf("record: %w", err)
		}
	}
	return nil
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<24)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		message, _ := hex.DecodeString(strings.TrimSpace(line))
		said := ""
		func() {
			defer func() {
				if problem := recover(); problem != nil {
					said = fmt.Sprintf("panic: %v", problem)
				}
			}()
			if err := read(message); err != nil {
				said = err.Error()
			}
		}()
		fmt.Println(strings.ReplaceAll(said, "\n", " "))
	}
}
