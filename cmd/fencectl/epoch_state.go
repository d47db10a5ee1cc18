package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/epoch"
)

// read reads the databases before etcd.
func (e *epochFlags) read(ctx context.Context) (epoch.State, error) {
	s := epoch.State{Databases: make([]epoch.Database, len(e.databases.urls)), Keys: make([]inspect.Epoch, len(e.prefixes))}
	err := e.databases.each(ctx, func(ctx context.Context, i int, pool *pgxpool.Pool) (err error) {
		s.Databases[i], err = epoch.Read(ctx, pool, e.databases.schema)
		return err
	})
	if err != nil {
		return s, err
	}
	err = e.withPrefixes(ctx, func(ctx context.Context, i int, client *clientv3.Client) error {
		inspector, err := inspect.New(client, e.prefixes[i], inspectTimeout)
		if err != nil {
			return cli.UsageErrorf("%w", err)
		}
		s.Keys[i], err = inspector.Epoch(ctx)
		if hasReason(err, fence.InvalidEpoch) {
			return nil
		}
		return err
	})
	return s, err
}

// epochRow is a row of "epoch show" and "epoch bump".
type epochRow struct {
	Where     string      `json:"where"` // etcd's key or the database
	Epoch     int64       `json:"epoch"`
	Token     fence.Token `json:"highest_token,omitempty"` // in etcd its revision
	Resource  string      `json:"highest_resource,omitempty"`
	ClusterID string      `json:"cluster_id,omitempty"` // of etcd, in hexadecimal
	NoKey     bool        `json:"no_key,omitempty"`
	RaisedAt  *time.Time  `json:"raised_at,omitempty"`
	By        string      `json:"by,omitempty"`
	Reason    string      `json:"reason,omitempty"`
	Drift     epoch.Drift `json:"drift,omitempty"`
}

func (epochRow) Columns() []string {
	return []string{"where", "epoch", "highest_token", "raised", "by", "reason", "drift"}
}

func (r epochRow) Cells() []string {
	number, token, raised := fmt.Sprint(r.Epoch), "", ""
	switch {
	case r.NoKey:
		number = "1 (no key)"
	case r.Epoch == 0:
		number = "none"
	}
	if r.Token > 0 {
		token = r.Token.String()
	}
	if r.RaisedAt != nil {
		raised = r.RaisedAt.Format(time.RFC3339)
	}
	where := r.Where
	if r.ClusterID != "" {
		where += " in cluster " + r.ClusterID
	}
	return []string{where, number, token, raised, r.By, r.Reason, string(r.Drift)}
}

// rows shows the state. etcd's tokens are bounded by its revision.
func (e *epochFlags) rows(s epoch.State) []epochRow {
	var rows []epochRow
	for _, key := range s.Keys {
		row := epochRow{Where: "etcd " + key.Key, Epoch: key.Number, NoKey: key.KeyRevision == 0, Token: fence.Token(key.Revision), ClusterID: fmt.Sprintf("%x", key.ClusterID)}
		if key.Number == 0 {
			row.Drift = epoch.NoEpoch
		}
		rows = append(rows, row)
	}
	for i, d := range s.Databases {
		row := epochRow{Where: "database " + e.databases.names[i], Epoch: d.Number, Token: d.Highest.Token, Resource: d.Highest.Resource, Drift: s.Drift(d)}
		if d.Raised != nil {
			row.RaisedAt, row.By, row.Reason = timeOrNil(d.Raised.At), d.Raised.Operator, d.Raised.Reason
		}
		rows = append(rows, row)
	}
	return rows
}
