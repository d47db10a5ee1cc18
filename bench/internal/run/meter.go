package run

import (
	"context"

	"github.com/fencekit/fencekit/bench/internal/machine"
	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/bench/internal/room"
)

// meter reads what the servers and the machine have used at the limits of a measured time.
type meter struct {
	ctx    context.Context
	room   *room.Room
	before machine.Sample
	use    machine.Use
	wal    int64
	beside map[result.Metric]float64 // of what went on beside
}

func (m *meter) begin() (err error) {
	if m.wal, err = m.room.WAL(m.ctx); err != nil {
		return err
	}
	m.before, err = machine.Take(m.room.Processes())
	return err
}

func (m *meter) end() error {
	after, err := machine.Take(m.room.Processes())
	if err != nil {
		return err
	}
	m.use = after.Since(m.before)
	wal, err := m.room.WAL(m.ctx)
	m.wal = wal - m.wal
	return err
}
