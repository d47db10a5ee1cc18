// Package telemetry has what guardprometheus and guardotel share: the definitions of the
// metrics, and the Observer that records them. An adapter turns the definitions into
// instruments of its own, and records values in them.
package telemetry
