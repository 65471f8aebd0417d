import solid from "vite-plugin-solid";
import { defineConfig } from "vitest/config";

// `npm run build` writes into the Python package; during development `npx vite` forwards /api to a running `neuronscope view`.
export default defineConfig({
  plugins: [solid({ hot: false })],
  base: "./",
  build: {
    outDir: "../src/neuronscope/_web",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 500,
  },
  server: { proxy: { "/api": "http://127.0.0.1:3001" } },
  test: { include: ["src/**/*.test.ts"], environment: "node", css: true },
});
