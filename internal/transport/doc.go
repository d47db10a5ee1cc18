// Package transport is what guardhttp and guardgrpc share: how grants are read from what
// a client sent, and what an error of guard is to that client.
package transport
