// Charts by uPlot, with a table of the same numbers behind each.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { S } from "./strings";

export type Line = { name: string; color: "before" | "after"; values: (number | null)[]; isBar?: boolean };

const colorOf = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Return a number that changes when the system changes between light and dark. */
function useTheme(): boolean {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [isDark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return isDark;
}

/** A chart of one or more lines or bars over `x`. `format`: of the numbers in the table. */
export function Chart(props: {
  label: string;
  xLabel: string;
  x: number[];
  xText: (value: number) => string;
  lines: Line[];
  format: (value: number) => string;
  marker?: number;
}): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const isDark = useTheme();
  const { x, lines, marker } = props;
  useEffect(() => {
    const element = box.current!;
    const axis = { stroke: colorOf("muted"), grid: { stroke: colorOf("line"), width: 1 }, ticks: { show: false } };
    const isBars = lines.some((line) => line.isBar);
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: 200,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false, range: (_, low, high) => (isBars ? [low - 0.6, high + 0.6] : [low, high]) },
          y: { range: [0, 1] },
        },
        axes: [
          {
            ...axis,
            // Bars stand at the values of x alone.
            values: (_, values) => values.map((value) => (isBars && !x.includes(value) ? "" : props.xText(value))),
            ...(isBars ? { incrs: [1, 2, 5, 10, 50] } : {}),
          },
          { ...axis, values: (_, values) => values.map(props.format), size: 56 },
        ],
        series: [
          {},
          ...lines.map((line, index) => ({
            stroke: colorOf(line.color),
            fill: line.isBar ? colorOf(line.color) : undefined,
            width: line.isBar ? 0 : 2,
            points: { show: false },
            paths: line.isBar
              ? uPlot.paths.bars!({ size: [0.38, 40], align: index === 0 ? -1 : 1, gap: 1 })
              : uPlot.paths.stepped!({ align: 1 }),
          })),
        ],
        hooks: {
          draw: [
            (self) => {
              if (marker === undefined) return;
              const left = self.valToPos(marker, "x", true);
              self.ctx.save();
              self.ctx.strokeStyle = colorOf("text");
              self.ctx.setLineDash([4, 4]);
              self.ctx.beginPath();
              self.ctx.moveTo(left, self.bbox.top);
              self.ctx.lineTo(left, self.bbox.top + self.bbox.height);
              self.ctx.stroke();
              self.ctx.restore();
            },
          ],
        },
      },
      [x, ...lines.map((line) => line.values)] as uPlot.AlignedData,
      element,
    );
    const resized = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: 200 }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      chart.destroy();
    };
  }, [isDark, JSON.stringify([x, lines, marker])]);
  return (
    <figure class="chart">
      <figcaption>
        {props.label}
        {lines.length > 1 && (
          <span class="legend">
            {lines.map((line) => (
              <span class={`key ${line.color}`}>{line.name}</span>
            ))}
          </span>
        )}
      </figcaption>
      <div ref={box} role="img" aria-label={props.label} />
      <details>
        <summary>{S.numbers}</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label={props.label}>
          <table>
            <thead>
              <tr>
                <th scope="col">{props.xLabel}</th>
                {lines.map((line) => (
                  <th scope="col">{line.name}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {x.map((value, row) => (
                <tr>
                  <th scope="row">{props.xText(value)}</th>
                  {lines.map((line) => {
                    const shown = line.values[row];
                    return <td>{shown === null || shown === undefined ? S.none : props.format(shown)}</td>;
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}
