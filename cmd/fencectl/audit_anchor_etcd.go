package main

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/cli"
)

// anchorWithEtcd anchors in a log that has to match the checkpoint in etcd, and replaces that
// checkpoint unless another process has replaced it meanwhile. So an earlier checkpoint never
// replaces a later one.
func (a *anchoring) anchorWithEtcd(ctx context.Context) (done *anchor.Run, err error) {
	err = a.etcd.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
		key := a.etcd.prefix + "/anchors/" + a.signer.Name()
		answer, err := client.Get(ctx, key)
		if err != nil {
			return err
		}
		var published *anchor.Checkpoint
		revision := int64(0)
		if len(answer.Kvs) > 0 {
			revision = answer.Kvs[0].ModRevision
			if published, err = anchor.ParseCheckpoint(string(answer.Kvs[0].Value), a.signer.Public()); err != nil {
				return explainAnchor(fmt.Errorf("key %s in etcd: %w", key, err))
			}
		}
		if done, err = a.anchor(ctx, published); err != nil {
			return explainAnchor(err)
		}
		if published != nil && published.Size == done.Checkpoint.Size {
			return nil
		}
		return publish(ctx, client, key, revision, done.Checkpoint)
	})
	return done, err
}

// publish puts a checkpoint under a key in etcd if the key's mod revision is still revision, or
// if the key doesn't exist and revision is 0.
func publish(ctx context.Context, client *clientv3.Client, key string, revision int64, c *anchor.Checkpoint) error {
	put, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(clientv3.OpPut(key, c.Note)).Commit()
	if err == nil && !put.Succeeded {
		return cli.NotReady(fmt.Errorf("key %s in etcd was changed during this run; run the command again", key))
	}
	return err
}
