package service

import (
	"net/http"
	"strconv"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// readLimit reads how much one page may hold.
func readLimit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > maxLimit {
		return 0, badRequest("limit has to be a whole number from 1 to %d.", maxLimit)
	}
	return limit, nil
}

// page cuts off what was read beyond limit, which is there to show that another
// page follows.
func page[T any](items []T, limit int) (cut []T, more bool) {
	if len(items) > limit {
		return items[:limit], true
	}
	return items, false
}
