package service

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

func TestMetrics_CountDeductions(t *testing.T) {
	t.Parallel()
	dsn, _ := stocked(t)
	s := startService(t, config(t, dsn))
	for _, key := range []string{"a", "b", "b"} {
		require.Equal(t, http.StatusOK, s.deduct(key, `{"qty":2}`).status)
	}
	require.Equal(t, http.StatusConflict, s.deduct("c", `{"qty":1000}`).status)
	answer := s.get("/metrics")
	require.Equal(t, http.StatusOK, answer.status)
	for _, line := range []string{
		`guard_writes_total{class="sku",outcome="committed"} 3`, // that there was too little is an answer, and is kept
		`guard_writes_total{class="sku",outcome="repeated"} 1`,
		`guard_writes_total{class="sku",outcome="rejected"} 0`,
		`fence_acquires_total{class="sku"} 1`,
		`fence_locks_held{class="sku"} 1`,
	} {
		require.Contains(t, answer.body, line+"\n")
	}
	require.NotContains(t, answer.body, SKU, "no resource is a label")
}

// spanCollector is an OTLP collector that keeps spans.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracepb.Span
}

func (c *spanCollector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestTraces_GoWhereTheStandardVariablesSay(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	spans, server := &spanCollector{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, spans)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())

	dsn, _ := stocked(t)
	t.Run("server", func(t *testing.T) { // when it ends, the server has stopped and sent its spans
		s := startService(t, config(t, dsn))
		order := s.order("a", `{"qty":2}`)
		order.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		require.Equal(t, http.StatusOK, s.call(order).status)
	})
	require.Len(t, spans.spans, 1)
	span := spans.spans[0]
	require.Equal(t, "deduct sku", span.Name)
	require.Equal(t, []byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}, span.ParentSpanId, "it belongs to the client's trace")
}

func TestProfiles_AreServedOnThisMachineOnly(t *testing.T) {
	t.Parallel()
	end, err := serveProfiles("127.0.0.1:0", quiet)
	require.NoError(t, err)
	require.NoError(t, end())
	_, err = serveProfiles("0.0.0.0:0", quiet)
	require.ErrorContains(t, err, "127.0.0.1:6060")
}
