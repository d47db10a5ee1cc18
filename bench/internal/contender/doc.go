// Package contender has what the benchmark compares: Fencekit, and what is used in its place.
//
// The operation is the same for all: for each of its keys it reads a row's quantity, and
// writes it back less one. So a contender that doesn't exclude others loses updates, which
// shows in the sum afterwards. A contender of locks only acquires and releases.
package contender
