package etcd

import "github.com/fencekit/fencekit/fence"

var _ fence.EpochKeeper = (*Locker)(nil)

// Epoch implements fence.EpochKeeper: it is the one that etcd had at the last answer to Check or an acquisition.
func (l *Locker) Epoch() int64 { return l.cluster.Sending().Epoch.Number }

// EpochRemedy implements fence.EpochKeeper.
func (l *Locker) EpochRemedy(from, to int64) string {
	if to < from {
		return "fencectl epoch bump --reason TEXT --trust databases"
	}
	return "raise the epoch: fencectl epoch bump --reason TEXT"
}
